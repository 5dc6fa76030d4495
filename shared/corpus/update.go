package corpus

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/text"
)

// Change is what an update asks for: absent fields stay, cleared ones become
// empty (Visibility: private).
type Change struct {
	// Genre may only repeat what the note is.
	Genre        op.Opt[Genre]
	Title        op.Opt[string]
	Body         op.Opt[string]
	ParentID     op.Opt[uuid.UUID]
	Tags         op.Opt[[]string]
	Aliases      op.Opt[[]string]
	Visibility   op.Opt[Visibility]
	ShowAsSource op.Opt[bool]
	Source       op.Opt[string]
	// Version is the one that the caller has read; nil doesn't care.
	Version *int64
}

// Update changes a note. A rename or a move changes the paths of all notes
// below it in the same transaction. changed is how many notes did, itself
// included; 0, and no event, when there was nothing to change. The event is the
// note's own; those below it get theirs.
//
// Faults besides those of Create: not_found, version_conflict, cycle (409).
func Update(ctx context.Context, tx *pg.Tx, owner, id, event uuid.UUID, ch Change) (n Note, changed int64, err error) {
	var b pgx.Batch
	if ch.Title.Set || ch.ParentID.Set {
		lockTree(&b, owner)
	}
	n.queueLocked(&b, owner, id, "n.deleted_at IS NULL")
	if err := send(ctx, tx, &b); err != nil {
		return n, 0, err
	}
	if err := expected(ch.Version, n.Version); err != nil {
		return n, 0, err
	}
	old := n
	if err := n.apply(ch); err != nil {
		return n, 0, err
	}
	if n.Genre != Raw && (n.Title != old.Title || !same(n.ParentID, old.ParentID)) {
		slug, hashed := slugs(n.Title)
		if text.TitleKey(n.Title) == text.TitleKey(old.Title) {
			slug = old.slug
		}
		if err := n.settle(ctx, tx, owner, subtreeSQL, slug, hashed); err != nil {
			return n, 0, err
		}
	}
	if n.equal(old) {
		return n, 0, nil
	}
	b = pgx.Batch{}
	outbox.NameIn(ctx, tx, &b, event)
	body := n.Body
	if *body == *old.Body {
		body = nil // keeps what is stored, and where
	}
	b.Queue(`
		UPDATE notes SET title = nullif($2, ''), title_key = nullif($3, ''), slug = nullif($4, ''), path = nullif($5, ''), parent_id = $6,
			body = coalesce($7, body), tags = $8, tag_keys = $9, aliases = $10, visibility = $11, show_as_source = $12, source = nullif($13, '')
		WHERE id = $1 RETURNING version, updated_at`,
		n.ID, n.Title, text.TitleKey(n.Title), n.slug, n.Path, n.ParentID,
		body, n.Tags, tagKeys(n.Tags), n.Aliases, n.Visibility, n.ShowAsSource, n.Source,
	).QueryRow(func(row pgx.Row) error { return row.Scan(&n.Version, &n.UpdatedAt) })
	if n.Path != old.Path {
		b.Queue(`UPDATE notes n SET path = $1 || substr(n.path, length($5) + 1) WHERE n.id <> $4 AND `+subtreeSQL,
			n.Path, owner, n.Genre, n.ID, old.Path).
			Exec(func(tag pgconn.CommandTag) error { changed = tag.RowsAffected(); return nil })
	}
	err = placed(tx.Last(ctx, &b), n.Title)
	return n, changed + 1, err
}

// expected is the fault of a note that isn't at the version that a caller read;
// nil is any.
func expected(version *int64, now int64) error {
	if version == nil || *version == now {
		return nil
	}
	return fault.New(fault.Conflict, "version_conflict",
		fmt.Sprintf("The note is at version %d, and the change was made for version %d. Read it again.", now, *version))
}

// queueLocked queues the read of a note that stays locked until the end of the
// transaction.
func (n *Note) queueLocked(b *pgx.Batch, owner, id uuid.UUID, where string) {
	b.Queue(`SELECT `+withBody+` FROM notes n WHERE n.id = $1 AND n.owner_id = $2 AND `+where+` FOR UPDATE`, id, owner).
		QueryRow(func(row pgx.Row) error { return n.scan(row) })
}

// apply puts a change into n and checks the result.
func (n *Note) apply(ch Change) error {
	if ch.Genre.Set && ch.Genre.Value != n.Genre {
		return invalid("genre", "genre_fixed", fmt.Sprintf("A note keeps its genre, and this one is %s. corpus.promote makes a new note of the next genre from it.", n.Genre))
	}
	d := Draft{
		Genre: n.Genre, Title: ch.Title.Or(n.Title), Body: ch.Body.Or(*n.Body), ParentID: n.ParentID,
		Tags: ch.Tags.Or(n.Tags), Aliases: ch.Aliases.Or(n.Aliases), Visibility: ch.Visibility.Or(n.Visibility),
		ShowAsSource: ch.ShowAsSource.Or(n.ShowAsSource), Source: ch.Source.Or(n.Source),
	}
	if ch.ParentID.Set {
		d.ParentID = nil
		if !ch.ParentID.Null {
			d.ParentID = &ch.ParentID.Value
		}
	}
	if err := d.check(); err != nil {
		return err
	}
	n.Title, n.Body, n.ParentID, n.Tags, n.Aliases = d.Title, &d.Body, d.ParentID, d.Tags, d.Aliases
	n.Visibility, n.ShowAsSource, n.Source = d.Visibility, d.ShowAsSource, d.Source
	return nil
}

// equal reports whether n says what old says.
func (n *Note) equal(old Note) bool {
	return n.Title == old.Title && n.Path == old.Path && same(n.ParentID, old.ParentID) && *n.Body == *old.Body &&
		slices.Equal(n.Tags, old.Tags) && slices.Equal(n.Aliases, old.Aliases) && n.Visibility == old.Visibility &&
		n.ShowAsSource == old.ShowAsSource && n.Source == old.Source
}

func same(a, b *uuid.UUID) bool { return a == b || a != nil && b != nil && *a == *b }
