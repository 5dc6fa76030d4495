package corpus

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
	"standmeet/shared/text"
)

const (
	// MaxLinks is how many different links of a note are looked up.
	MaxLinks = 1_000
	// MaxBacklinks is how many notes that link to one are listed.
	MaxBacklinks = 100

	// how many notes are looked at to find what some links mean
	maxCandidates = 2_000
)

// Link is a link of a note to another.
type Link struct {
	Target  string `json:"target" jsonschema:"what the note says: a name, path or address"`
	Heading string `json:"heading,omitempty"`
	Block   string `json:"block,omitempty"`
	Text    string `json:"text,omitempty" jsonschema:"what a reader sees"`
	Embed   bool   `json:"embed,omitempty"`
	State   string `json:"state" enum:"resolved,unresolved,ambiguous" jsonschema:"resolved to one note or attachment; unresolved: there is none; ambiguous: several have this name"`
	Note    *Named `json:"note,omitempty" jsonschema:"the note that it leads to"`
	File    *File  `json:"file,omitempty" jsonschema:"the attachment that it leads to"`
}

// File is an attachment that a link leads to.
type File struct {
	Path        string `json:"path" jsonschema:"where it lies in the vault"`
	URL         string `json:"url" jsonschema:"where it is read, from the server's address on"`
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`
	SHA256      string `json:"sha256"`
}

// The states of a link.
const (
	Resolved   = "resolved"
	Unresolved = "unresolved"
	Ambiguous  = "ambiguous"
)

// Named is what a list of links tells of a note.
type Named struct {
	ID    uuid.UUID `json:"id"`
	Genre Genre     `json:"genre" enum:"raw,wiki,output"`
	URI   string    `json:"uri"`
	Title string    `json:"title"`
}

// LinksOf resolves the links of a note that has its body, each different one
// once. A target may be an address, a path, or a note's title, alias or slug, in
// this order, and then by its last part alone; one with a '#' may first of all be
// a title or alias that holds it. Notes of the note's own genre come
// before wiki, output and raw notes, and of several of one name the one that
// stands beside it. A nil seen is the owner; otherwise only
// notes of these visibilities, and no raw ones, are there.
func LinksOf(ctx context.Context, q pg.Querier, owner uuid.UUID, n Note, seen []Visibility) ([]Link, error) {
	read := readLinks(text.Extract([]byte(*n.Body)).Links)
	found, err := candidates(ctx, q, owner, slices.Concat(read.targets...), seen)
	if err != nil {
		return nil, err
	}
	return read.resolve(found, standOf(n.Genre, n.Path)), nil
}

// linksRead are the different links of a note to other notes, with what each may
// mean.
type linksRead struct {
	links   []Link
	wholes  []string
	targets [][]target
}

func readLinks(all []text.Link) (r linksRead) {
	r.links = []Link{}
	known := map[text.Link]bool{}
	for _, l := range all {
		if l.Target == "" || known[l] {
			continue // within the note itself
		}
		if known[l] = true; len(r.links) == MaxLinks {
			break
		}
		r.links = append(r.links, Link{Target: l.Target, Heading: l.Heading, Block: l.Block, Text: l.Text, Embed: l.Embed})
		whole := cmp.Or(l.Whole, l.Target)
		r.wholes, r.targets = append(r.wholes, whole), append(r.targets, meanings(whole))
	}
	return r
}

func (r linksRead) resolve(found directory, from stand) []Link {
	for i := range r.links {
		l := &r.links[i]
		var t target
		l.State, l.Note, t = found.first(r.targets[i], from)
		if t.whole {
			l.Target, l.Heading, l.Block = r.wholes[i], "", ""
		}
	}
	return r.links
}

// stand is where a note stands whose links are resolved.
type stand struct {
	genre Genre
	// dir is the path of what it stands under, with a final '/'.
	dir string
}

func standOf(g Genre, path string) stand { return stand{g, path[:strings.LastIndexByte(path, '/')+1]} }

// Backlinks lists the notes that link to n, last changed first, as the search
// index knows them. seen: see LinksOf.
func Backlinks(ctx context.Context, q pg.Querier, owner uuid.UUID, n Note, seen []Visibility) ([]Named, error) {
	wanted := []string{n.URI, partOf + n.URI}
	for _, name := range namesOf(n.Title, n.slug, n.Path, n.Aliases) {
		wanted = append(wanted, name, partOf+name)
	}
	rows, err := q.Query(ctx, `
		SELECT n.id, n.genre, coalesce(n.path, ''), coalesce(n.title, ''), s.links
		FROM note_search s JOIN notes n ON n.id = s.note_id
		WHERE s.owner_id = $1 AND s.links && $2 AND n.deleted_at IS NULL AND n.id <> $3
			AND ($4::text[] IS NULL OR n.genre <> 'raw' AND n.visibility = ANY ($4) AND s.version = n.version)
		ORDER BY n.updated_at DESC, n.id DESC LIMIT $5`, owner, usable(wanted), n.ID, seen, 2*MaxBacklinks)
	if err != nil {
		return nil, err
	}
	type linking struct {
		note    Named
		stand   stand
		targets [][]target
	}
	var all []target
	var path string
	var links []string
	sources, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l linking, err error) {
		if err := row.Scan(&l.note.ID, &l.note.Genre, &path, &l.note.Title, &links); err != nil {
			return l, err
		}
		l.note.URI, l.stand = uri(l.note.Genre, path, l.note.ID), standOf(l.note.Genre, path)
		for _, name := range links {
			// a part is how it may have been found; the whole decides
			if !strings.HasPrefix(name, partOf) && slices.ContainsFunc(linkKeys(name), func(key string) bool { return slices.Contains(wanted, key) }) {
				l.targets = append(l.targets, meanings(name))
			}
		}
		all = append(all, slices.Concat(l.targets...)...)
		return l, nil
	})
	if err != nil {
		return nil, pg.Fault(err)
	}
	found, err := candidates(ctx, q, owner, all, seen)
	if err != nil {
		return nil, err
	}
	backlinks := []Named{}
	for _, s := range sources {
		leads := slices.ContainsFunc(s.targets, func(ts []target) bool {
			_, to, _ := found.first(ts, s.stand)
			return to != nil && to.ID == n.ID
		})
		if leads && len(backlinks) < MaxBacklinks {
			backlinks = append(backlinks, s.note)
		}
	}
	return backlinks, nil
}

// target is a link's target, read.
type target struct {
	// name is the whole target, folded; last its last part.
	name, last string
	// genre is set by an address, or by a first folder of that name.
	genre Genre
	// path is the target as a path of slugs.
	path    string
	address bool
	id      uuid.UUID
	// whole: it holds a '#' or '^' that may part a fragment from it. Only a title
	// or an alias can be meant, since slugs and paths have neither.
	whole bool
}

// meanings are what a link's target may mean, the first that is there.
func meanings(s string) []target {
	name := text.FoldName(s)
	base, _, cut := text.CutFragment(name)
	if !cut || base == "" {
		return []target{parseTarget(name)}
	}
	return []target{{name: name, last: name[strings.LastIndexByte(base, '/')+1:], whole: true}, parseTarget(base)}
}

// first resolves the first of a link's meanings that is there.
func (d directory) first(meanings []target, from stand) (state string, to *Named, t target) {
	for _, t := range meanings {
		if state, to = d.resolve(t, from); state != Unresolved {
			return state, to, t
		}
	}
	return Unresolved, nil, target{}
}

func parseTarget(s string) target {
	t := target{name: text.FoldName(s)}
	rest := t.name
	for _, g := range []Genre{Raw, Wiki, Output} {
		if after, ok := strings.CutPrefix(rest, string(g)+"://"); ok {
			t.address, t.genre, rest = true, g, after
			break
		}
		if after, ok := strings.CutPrefix(rest, string(g)+"/"); ok {
			t.genre, rest = g, after
			break
		}
	}
	rest = strings.Trim(rest, "/")
	if t.genre == Raw {
		t.id, _ = uuid.Parse(rest)
	}
	parts := strings.Split(rest, "/")
	t.last = parts[len(parts)-1]
	for i, p := range parts {
		if !t.address && strings.Trim(p, ".") != "" {
			parts[i] = slugOf(p)
		}
	}
	t.path = strings.Join(parts, "/")
	return t
}

// candidate is a note that a link may mean.
type candidate struct {
	Named
	path    string
	slug    string
	title   string
	aliases []string
}

// directory finds candidates by any of their names.
type directory map[string][]candidate

// candidates finds the notes that any of the targets may mean.
func candidates(ctx context.Context, q pg.Querier, owner uuid.UUID, targets []target, seen []Visibility) (directory, error) {
	if len(targets) == 0 {
		return nil, nil
	}
	var keys, paths []string
	var ids []uuid.UUID
	for _, t := range targets {
		paths = append(paths, t.path, t.name)
		if t.id != uuid.Nil {
			ids = append(ids, t.id)
		}
		if !t.address {
			slug := slugOf(t.last)
			keys = append(keys, nameKey(t.name), nameKey(t.last), nameKey(slug))
		}
	}
	rows, err := q.Query(ctx, `
		SELECT n.id, n.genre, coalesce(n.path, ''), coalesce(n.slug, ''), coalesce(n.title, ''), n.aliases
		FROM notes n
		WHERE n.owner_id = $1 AND n.deleted_at IS NULL AND ($2::text[] IS NULL OR n.genre <> 'raw' AND n.visibility = ANY ($2))
			AND n.id IN (
				SELECT s.note_id FROM note_search s WHERE s.owner_id = $1 AND s.keys && $3
				UNION ALL SELECT p.id FROM notes p WHERE p.owner_id = $1 AND p.genre IN ('wiki', 'output') AND p.path = ANY ($4) AND p.deleted_at IS NULL
				UNION ALL SELECT unnest($5::uuid[])
			)
		LIMIT $6`, owner, seen, usable(keys), paths, ids, maxCandidates)
	if err != nil {
		return nil, err
	}
	found := directory{}
	var c candidate
	_, err = pgx.ForEachRow(rows, []any{&c.ID, &c.Genre, &c.path, &c.slug, &c.Title, &c.aliases}, func() error {
		found.add(c)
		c = candidate{}
		return nil
	})
	return found, pg.Fault(err)
}

func (d directory) add(c candidate) {
	c.URI, c.title = uri(c.Genre, c.path, c.ID), text.FoldName(c.Title)
	folded := make([]string, len(c.aliases))
	for i, a := range c.aliases {
		folded[i] = text.FoldName(a)
	}
	c.aliases = folded
	for _, name := range usable(append([]string{c.title, c.slug, c.path, c.ID.String()}, c.aliases...)) {
		if name != "" {
			d[name] = append(d[name], c)
		}
	}
}

// resolve tells what a target means in a note of a genre. What the index
// offered is compared with the notes as they are.
func (d directory) resolve(t target, from stand) (state string, to *Named) {
	lastSlug := slugOf(t.last)
	var near []candidate
	for _, name := range usable([]string{t.name, t.path, t.last, lastSlug, t.id.String()}) {
		for _, c := range d[name] {
			if !slices.ContainsFunc(near, func(o candidate) bool { return o.ID == c.ID }) {
				near = append(near, c)
			}
		}
	}
	placed := !t.whole
	whole := []func(candidate) bool{
		func(c candidate) bool {
			return placed && c.Genre == t.genre && (c.path == t.path && c.path != "" || t.id != uuid.Nil && c.ID == t.id)
		},
	}
	var last []func(candidate) bool
	if !t.address {
		whole = append(whole,
			func(c candidate) bool { return placed && c.path != "" && (c.path == t.path || c.path == t.name) },
			func(c candidate) bool { return c.title == t.name },
			func(c candidate) bool { return slices.Contains(c.aliases, t.name) },
			func(c candidate) bool { return placed && c.slug != "" && (c.slug == t.name || c.slug == t.path) },
		)
		last = append(last,
			func(c candidate) bool { return placed && strings.HasSuffix(c.path, "/"+t.path) },
			func(c candidate) bool { return c.title == t.last },
			func(c candidate) bool { return slices.Contains(c.aliases, t.last) },
			func(c candidate) bool { return placed && c.slug != "" && (c.slug == t.last || c.slug == lastSlug) },
		)
	}
	for _, ways := range [][]func(candidate) bool{whole, last} {
		for _, genre := range []Genre{from.genre, Wiki, Output, Raw} {
			for _, is := range ways {
				var hits []candidate
				for _, c := range near {
					if c.Genre == genre && is(c) && (t.genre == "" || c.Genre == t.genre) {
						hits = append(hits, c)
					}
				}
				if len(hits) > 1 {
					if beside := slices.DeleteFunc(slices.Clone(hits), func(c candidate) bool { return standOf(c.Genre, c.path) != from }); len(beside) == 1 {
						hits = beside
					}
				}
				switch len(hits) {
				case 0:
				case 1:
					return Resolved, &hits[0].Named
				default:
					return Ambiguous, nil
				}
			}
		}
	}
	return Unresolved, nil
}
