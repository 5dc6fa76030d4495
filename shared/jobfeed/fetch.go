package jobfeed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/text/cases"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Fetching is a source as whoever fetches it needs it.
type Fetching struct {
	Kind, Board, URL   string
	ETag, LastModified string
}

// Open reads a source that is to be fetched; fault "not_found" once it is deleted.
func Open(ctx context.Context, q pg.Querier, owner, source uuid.UUID) (f Fetching, err error) {
	err = q.QueryRow(ctx, `SELECT kind, board, url, etag, last_modified FROM job_sources WHERE id = $1 AND owner_id = $2 AND deleted_at IS NULL`, source, owner).
		Scan(&f.Kind, &f.Board, &f.URL, &f.ETag, &f.LastModified)
	if pg.IsNoRows(err) {
		return f, fault.NotFound("job source")
	}
	return f, pg.Fault(err)
}

// Found is a listing as a source gave it. Texts are plain, times sane.
type Found struct {
	// ID is the source's own; empty where it has none.
	ID, URL, Title, Company, Location, Description string
	// PublishedAt is zero where the source doesn't say.
	PublishedAt time.Time
}

// Outcome is what one fetch of a source gave: the result of its task.
type Outcome struct {
	SourceID uuid.UUID `json:"source_id"`
	// Reason says why it failed; then nothing else counts.
	Reason string `json:"reason,omitempty"`
	// Seen counts what the source lists, New what was not in the pool before,
	// Duplicate what the pool has from another source, or the source gave twice.
	Seen      int `json:"seen"`
	New       int `json:"new"`
	Duplicate int `json:"duplicate"`
	// Unchanged: the source said that nothing has changed.
	Unchanged bool `json:"unchanged,omitempty"`
}

// Answer is what a source gave when it was read.
type Answer struct {
	Unchanged          bool
	ETag, LastModified string
	Listings           []Found
}

// Store puts what a fetch found into the pool, in the transaction that completes
// its task. What is known is brought up to date, and nothing is ever closed.
func Store(ctx context.Context, tx *pg.Tx, owner, source, event uuid.UUID, a Answer) (o Outcome, err error) {
	o = Outcome{SourceID: source, Unchanged: a.Unchanged}
	// fetches of one owner come in turn: what one finds the next one knows
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('job_listings ' || $1::text, 0))`, owner); err != nil {
		return o, err
	}
	if a.Unchanged {
		err := tx.QueryRow(ctx, `
			UPDATE job_sources SET fetched_at = clock_timestamp(), failed_reason = NULL, failed_at = NULL WHERE id = $1 RETURNING last_seen`, source).Scan(&o.Seen)
		return o, err
	}
	o.Seen = len(a.Listings)
	rows, repeated := identify(a.Listings)
	o.Duplicate = repeated
	known, err := readKnown(ctx, tx, owner, source)
	if err != nil {
		return o, err
	}
	is := known.match(rows)
	var b pgx.Batch
	for i, r := range rows {
		if id := is[i]; id != (uuid.UUID{}) {
			b.Queue(`
				UPDATE job_listings SET url = $2, canonical_url = $3, page = $4, title = $5, company = $6, location = $7, description = $8,
					published_at = coalesce($9, published_at), last_seen_at = clock_timestamp()
				WHERE id = $1`, id, r.URL, r.canonical, r.page, r.Title, r.Company, r.Location, r.Description, when(r.PublishedAt))
			if known.duplicate[id] {
				o.Duplicate++
			}
			continue
		}
		of, elsewhere := known.elsewhere[r.canonical]
		var duplicateOf *uuid.UUID
		if elsewhere && r.canonical != "" && r.alone {
			duplicateOf = &of
			o.Duplicate++
		} else {
			o.New++
		}
		b.Queue(`
			INSERT INTO job_listings (id, owner_id, source_id, external_id, url, canonical_url, page, title, company, location, description, published_at, found_by, duplicate_of)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
			outbox.NewID(), owner, source, r.external, r.URL, r.canonical, r.page, r.Title, r.Company, r.Location, r.Description, when(r.PublishedAt), event, duplicateOf)
	}
	b.Queue(`
		UPDATE job_sources SET etag = $2, last_modified = $3, last_seen = $4, fetched_at = clock_timestamp(), failed_reason = NULL, failed_at = NULL WHERE id = $1`,
		source, a.ETag, a.LastModified, o.Seen)
	raw, err := tx.Begin(ctx)
	if err != nil {
		return o, err
	}
	if err := raw.SendBatch(ctx, &b).Close(); err != nil {
		return o, err
	}
	return o, outbox.Record(ctx, tx, outbox.NewID(), outbox.JobsFetched, owner, source.String(), o)
}

// Failed records why a fetch failed, in the transaction that ends its task.
func Failed(ctx context.Context, tx *pg.Tx, owner, source uuid.UUID, reason string) (Outcome, error) {
	_, err := tx.Exec(ctx, `UPDATE job_sources SET failed_reason = $3, failed_at = clock_timestamp() WHERE id = $1 AND owner_id = $2`, source, owner, reason)
	return Outcome{SourceID: source, Reason: reason}, err
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// row is a listing with what it is known by.
type row struct {
	Found
	// external names it within its source; canonical is its address without what
	// changes from reader to reader, page that without its query.
	external, canonical, page string
	// alone: no other listing of the answer has its address.
	alone bool
}

// identify names what a source gave, each listing once; repeated counts the rest.
func identify(all []Found) (rows []row, repeated int) {
	seen, addresses := map[string]bool{}, map[string]int{}
	for _, f := range all {
		r := row{Found: f}
		r.canonical, r.page = canonical(f.URL)
		switch {
		case f.ID != "":
			// many feeds use the address as the name
			if c, _ := canonical(f.ID); c != "" {
				r.external = "u:" + short(c)
			} else {
				r.external = "i:" + short(f.ID)
			}
		case r.canonical != "":
			r.external = "u:" + short(r.canonical)
		default:
			r.external = "t:" + digest(fold(f.Title)+"\x00"+f.Description)
		}
		if seen[r.external] {
			repeated++
			continue
		}
		seen[r.external] = true
		addresses[r.canonical]++
		rows = append(rows, r)
	}
	for i := range rows {
		rows[i].alone = addresses[rows[i].canonical] == 1
	}
	return rows, repeated
}

// known is what the pool has.
type known struct {
	external  map[string]uuid.UUID
	page      map[string][]candidate
	duplicate map[uuid.UUID]bool
	elsewhere map[string]uuid.UUID
}

type candidate struct {
	id        uuid.UUID
	title     string
	published time.Time
}

func readKnown(ctx context.Context, tx *pg.Tx, owner, source uuid.UUID) (known, error) {
	k := known{map[string]uuid.UUID{}, map[string][]candidate{}, map[uuid.UUID]bool{}, map[string]uuid.UUID{}}
	rows, err := tx.Query(ctx, `
		SELECT id, source_id = $2, external_id, canonical_url, page, title, published_at, duplicate_of IS NOT NULL
		FROM job_listings WHERE owner_id = $1 AND (source_id = $2 OR duplicate_of IS NULL AND canonical_url <> '')`, owner, source)
	if err != nil {
		return k, err
	}
	var id uuid.UUID
	var own, duplicate bool
	var external, address, page, title string
	var published *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &own, &external, &address, &page, &title, &published, &duplicate}, func() error {
		if !own {
			k.elsewhere[address] = id
			return nil
		}
		k.external[external], k.duplicate[id] = id, duplicate
		if page != "" {
			c := candidate{id: id, title: fold(title)}
			if published != nil {
				c.published = *published
			}
			k.page[page] = append(k.page[page], c)
		}
		return nil
	})
	return k, err
}

// match gives the listing that each row is, zero for those that are new. Where a
// source has no name for a listing and its address is not known, one of the same
// page with the same title or time is the one, unless that is listed too: such a
// query holds what changes from reader to reader.
func (k known) match(rows []row) []uuid.UUID {
	is, listed := make([]uuid.UUID, len(rows)), map[uuid.UUID]bool{}
	for i, r := range rows {
		if id, ok := k.external[r.external]; ok {
			is[i], listed[id] = id, true
		}
	}
	for i, r := range rows {
		if is[i] != (uuid.UUID{}) || r.ID != "" || r.page == "" {
			continue
		}
		for _, c := range k.page[r.page] {
			dated := !c.published.IsZero() && !r.PublishedAt.IsZero()
			if same := c.published.Equal(r.PublishedAt); !listed[c.id] && (dated && same || (!dated || same) && c.title == fold(r.Title)) {
				is[i], listed[c.id] = c.id, true
				break
			}
		}
	}
	return is
}

func fold(s string) string { return cases.Fold().String(strings.Join(strings.Fields(s), " ")) }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// short keeps names within what an index takes.
func short(s string) string {
	if len(s) <= 500 {
		return s
	}
	return s[:400] + "…" + digest(s)
}

var tracking = regexp.MustCompile(`(?i)^(utm_.*|gclid|dclid|fbclid|msclkid|mc_[ce]id|igshid|ref|referrer|referer|source|src|campaign|gh_src|lever-(origin|source)(\[\])?|trk|trackingid|sessionid|sid|_hs(enc|mi)|mkt_tok)$`)

// canonical is an address without what differs from reader to reader: the scheme,
// www, tracking parameters, their order, the fragment, a final slash; and page is
// that without its query. Both are empty for what is no web address.
func canonical(raw string) (address, page string) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", ""
	}
	host := strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.")
	if port := u.Port(); port != "" && port != "80" && port != "443" {
		host += ":" + port
	}
	page = host + strings.TrimRight(u.EscapedPath(), "/")
	query := u.Query()
	for name := range query {
		if tracking.MatchString(name) {
			query.Del(name)
		}
	}
	address = page
	if q := query.Encode(); q != "" {
		address += "?" + q
	}
	return address, page
}

// Listing is one of the pool, as its owner reads it.
type Listing struct {
	ID          uuid.UUID  `json:"id"`
	SourceID    uuid.UUID  `json:"source_id"`
	Title       string     `json:"title"`
	Company     string     `json:"company"`
	Location    string     `json:"location" jsonschema:"empty where the source doesn't say"`
	URL         string     `json:"url" jsonschema:"where it is read; empty where the source doesn't say"`
	PublishedAt *time.Time `json:"published_at" jsonschema:"null where the source doesn't say"`
	FirstSeenAt time.Time  `json:"first_seen_at"`
	LastSeenAt  time.Time  `json:"last_seen_at" jsonschema:"when its source last listed it. A listing is never closed here: that it was not seen since may have many reasons"`
	New         bool       `json:"new" jsonschema:"true: it was found by the fetch that this answer is about, or since the time that was asked for"`
	Description string     `json:"description,omitempty" jsonschema:"plain text; left out of lists"`
}

const listingSQL = `id, source_id, title, company, location, url, published_at, first_seen_at, last_seen_at`

func scanListing(row pgx.CollectableRow) (l Listing, err error) {
	err = row.Scan(&l.ID, &l.SourceID, &l.Title, &l.Company, &l.Location, &l.URL, &l.PublishedAt, &l.FirstSeenAt, &l.LastSeenAt)
	return l, err
}

// FoundBy lists what fetches found, newest first, at most limit; total counts all.
func FoundBy(ctx context.Context, q pg.Querier, owner uuid.UUID, events []uuid.UUID, limit int) (items []Listing, total int, err error) {
	rows, err := q.Query(ctx, `
		SELECT `+listingSQL+` FROM job_listings WHERE owner_id = $1 AND found_by = ANY ($2) AND duplicate_of IS NULL
		ORDER BY published_at DESC NULLS LAST, id LIMIT $3`, owner, events, limit)
	if err != nil {
		return nil, 0, pg.Fault(err)
	}
	if items, err = pgx.CollectRows(rows, scanListing); err != nil {
		return nil, 0, pg.Fault(err)
	}
	for i := range items {
		items[i].New = true
	}
	if total = len(items); total == limit {
		err = q.QueryRow(ctx, `SELECT count(*) FROM job_listings WHERE owner_id = $1 AND found_by = ANY ($2) AND duplicate_of IS NULL`, owner, events).Scan(&total)
	}
	return items, total, pg.Fault(err)
}

// Filter narrows the pool; zero fields don't.
type Filter struct {
	Source uuid.UUID
	// Text is looked for in title, company, location and description.
	Text string
	// Since is when a listing was first seen, at the earliest.
	Since time.Time
}

// Pool lists an owner's listings, last found first, after the one (zero: from the
// newest). next is zero on the last page; total counts all that match.
func Pool(ctx context.Context, q pg.Querier, owner uuid.UUID, f Filter, after uuid.UUID, limit int) (items []Listing, next uuid.UUID, total int, err error) {
	upto := uuid.Max
	if after != (uuid.UUID{}) {
		upto = after
	}
	like := "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(f.Text) + "%"
	const where = ` FROM job_listings WHERE owner_id = $1 AND duplicate_of IS NULL AND ($2 = '00000000-0000-0000-0000-000000000000'::uuid OR source_id = $2)
		AND ($3 = '%%' OR title ILIKE $3 OR company ILIKE $3 OR location ILIKE $3 OR description ILIKE $3) AND first_seen_at >= $4`
	rows, err := q.Query(ctx, `SELECT `+listingSQL+where+` AND id < $5 ORDER BY id DESC LIMIT $6`, owner, f.Source, like, f.Since, upto, limit+1)
	if err != nil {
		return nil, next, 0, pg.Fault(err)
	}
	if items, err = pgx.CollectRows(rows, scanListing); err != nil {
		return nil, next, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items = items[:limit]
		next = items[limit-1].ID
	}
	for i := range items {
		items[i].New = !f.Since.IsZero()
	}
	err = q.QueryRow(ctx, `SELECT count(*)`+where, owner, f.Source, like, f.Since).Scan(&total)
	return items, next, total, pg.Fault(err)
}

// Get reads one listing with its description; fault "not_found".
func Get(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (l Listing, err error) {
	err = q.QueryRow(ctx, `SELECT `+listingSQL+`, description FROM job_listings WHERE id = $1 AND owner_id = $2`, id, owner).
		Scan(&l.ID, &l.SourceID, &l.Title, &l.Company, &l.Location, &l.URL, &l.PublishedAt, &l.FirstSeenAt, &l.LastSeenAt, &l.Description)
	if pg.IsNoRows(err) {
		return l, fault.NotFound("job listing")
	}
	return l, pg.Fault(err)
}

// Sort orders outcomes by their sources, so that one set of fetches is always
// answered in the same way.
func Sort(all []Outcome) {
	slices.SortFunc(all, func(a, b Outcome) int { return cmp.Compare(a.SourceID.String(), b.SourceID.String()) })
}
