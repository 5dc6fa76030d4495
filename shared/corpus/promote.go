package corpus

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/text"
)

// Promotion says what becomes of a note that is promoted. Its zero value makes
// a private note of the next genre, at the root, with a title taken from the
// source.
type Promotion struct {
	// Genre must be above the source's; empty is the next.
	Genre      Genre
	Title      string
	ParentID   *uuid.UUID
	Visibility Visibility
	// Again makes another note although there is one already.
	Again bool
	// Version is the one of the source that the caller has read; nil doesn't care.
	// A note that was promoted before answers all the same.
	Version *int64
}

// Promote makes a note of a higher genre with the body, tags and source of
// another one, which keeps a mark of it. A note that was promoted before
// answers that first promotion, made false, unless it was deleted since. Both
// hold for promotions that run at the same time: there is one new note.
//
// Faults besides those of Create: not_found, version_conflict (409), nothing_above (409) for an output
// note, already_promoted (409) when the first promotion has another genre than
// the one asked for.
func Promote(ctx context.Context, tx *pg.Tx, owner, id, event uuid.UUID, p Promotion) (n Note, made bool, err error) {
	var source, first Note
	var found bool
	var b pgx.Batch
	if p.ParentID != nil {
		lockTreeShared(&b, owner)
	}
	source.queueLocked(&b, owner, id, "n.deleted_at IS NULL")
	// a statement of its own, so that it sees what the lock waited for
	b.Queue(`
		SELECT `+withBody+` FROM notes n
		WHERE n.id = (SELECT s.promoted_to FROM notes s WHERE s.id = $1 AND s.owner_id = $2) AND n.deleted_at IS NULL`, id, owner).
		Query(func(rows pgx.Rows) error {
			if found = rows.Next(); found {
				return first.scan(rows)
			}
			return rows.Err()
		})
	if err := send(ctx, tx, &b); err != nil {
		return n, false, err
	}
	ladder := []Genre{Raw, Wiki, Output}
	above := ladder[slices.Index(ladder, source.Genre)+1:]
	switch {
	case len(above) == 0:
		return n, false, fault.New(fault.Conflict, "nothing_above", "An output note is as far as a note can be promoted.")
	case found && !p.Again && p.Genre != "" && p.Genre != first.Genre:
		return n, false, fault.New(fault.Conflict, "already_promoted",
			"This note was promoted to "+first.URI+" already. Promote that one, or say again to make another.")
	case found && !p.Again:
		return first, false, nil
	case p.Genre == "":
		p.Genre = above[0]
	case !slices.Contains(above, p.Genre):
		return n, false, invalid("genre", "not_allowed", "A "+string(source.Genre)+" note can be promoted to "+strings.Join(strs(above), " or ")+".")
	}
	if err := expected(p.Version, source.Version); err != nil {
		return n, false, err
	}
	if strings.TrimSpace(p.Title) == "" {
		p.Title = titleOf(source)
	}
	d := Draft{
		Genre: p.Genre, Title: p.Title, Body: *source.Body, ParentID: p.ParentID, Tags: source.Tags,
		Visibility: p.Visibility, Source: source.Source, ShowAsSource: source.ShowAsSource,
	}
	if err := d.check(); err != nil {
		return n, false, err
	}
	n = d.note()
	n.PromotedFrom = &source.ID
	b = pgx.Batch{}
	outbox.NameIn(ctx, tx, &b, event)
	placed := n.insert(&b, owner)
	b.Queue(`UPDATE notes SET promoted_to = $1 WHERE id = $2 AND EXISTS (SELECT FROM notes WHERE id = $1)`, n.ID, source.ID)
	if err := tx.Last(ctx, &b); err != nil {
		return n, false, err
	}
	return n, true, placed()
}

func strs[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// titleOf names a note that has no title by its first heading, or its first
// line of text.
func titleOf(n Note) string {
	if n.Title != "" {
		return n.Title
	}
	doc := text.Extract([]byte(*n.Body))
	title, _, _ := strings.Cut(strings.TrimSpace(doc.Plain), "\n")
	if len(doc.Headings) > 0 {
		title = doc.Headings[0].Text
	}
	title = strings.Join(strings.Fields(title), " ")
	if utf8.RuneCountInString(title) > MaxTitle {
		title = string([]rune(title)[:MaxTitle])
	}
	return strings.TrimSpace(title)
}
