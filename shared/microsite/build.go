package microsite

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/waiter"
)

// Status is where a build stands.
type Status string

// The statuses of a build. Built and Failed are settled.
const (
	Queued   Status = "queued"
	Building Status = "building"
	Built    Status = "built"
	Failed   Status = "failed"
)

// Settled reports whether a build has ended.
func (s Status) Settled() bool { return s == Built || s == Failed }

// Message is what the builder says of a place in a file. Without a place it is
// about the whole site.
type Message struct {
	Severity string `json:"severity" enum:"error,warning"`
	Text     string `json:"text"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty" jsonschema:"from 1"`
	Column   int    `json:"column,omitempty" jsonschema:"from 1, in bytes"`
	Source   string `json:"source,omitempty" jsonschema:"the line as it stands in the file"`
}

// Build is a build as its owner sees it.
type Build struct {
	BuildID uuid.UUID `json:"build_id"`
	Slug    string    `json:"slug" jsonschema:"the site that it is of"`
	Number  int       `json:"number" jsonschema:"counts the builds of the site"`
	Status  Status    `json:"status" enum:"queued,building,built,failed"`
	Log     []Message `json:"log" jsonschema:"what the builder has to say, errors first"`
	Live    bool      `json:"live" jsonschema:"whether visitors are served it now"`
	// PreviewURL is filled in by whoever knows the address of the pages.
	PreviewURL  string     `json:"preview_url,omitempty" jsonschema:"where it can be looked at; whoever has the address can. Present once it is built"`
	Files       int        `json:"files" jsonschema:"how many files it serves"`
	Bytes       int64      `json:"bytes" jsonschema:"of these files together"`
	Position    int64      `json:"position,omitempty" jsonschema:"its place among your settled builds"`
	RequestedAt time.Time  `json:"requested_at"`
	SettledAt   *time.Time `json:"settled_at,omitempty"`
	PublishedAt *time.Time `json:"published_at,omitempty" jsonschema:"when it last went live"`

	siteID uuid.UUID
}

// MaxLog is how many messages a log keeps.
const MaxLog = 100

const buildSQL = `
	SELECT b.id, s.slug, b.number, b.state, b.log, coalesce(s.live_build = b.id, false), b.files, b.bytes, coalesce(b.position, 0), b.requested_at, b.settled_at, b.published_at, s.id
	FROM microsite_builds b JOIN microsites s ON s.id = b.site_id
	WHERE `

func scanBuild(row pgx.CollectableRow) (b Build, err error) {
	var log []byte
	if err = row.Scan(&b.BuildID, &b.Slug, &b.Number, &b.Status, &log, &b.Live, &b.Files, &b.Bytes, &b.Position, &b.RequestedAt, &b.SettledAt, &b.PublishedAt, &b.siteID); err == nil {
		err = json.Unmarshal(log, &b.Log)
	}
	return b, err
}

// GetBuild reads a build; fault "not_found".
func GetBuild(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (Build, error) {
	rows, err := q.Query(ctx, buildSQL+`b.id = $1 AND b.owner_id = $2`, id, owner)
	if err != nil {
		return Build{}, pg.Fault(err)
	}
	b, err := pgx.CollectExactlyOneRow(rows, scanBuild)
	if pg.IsNoRows(err) {
		return b, fault.NotFound("build")
	}
	return b, pg.Fault(err)
}

// Request asks for a build of a site's files as they are; event is the id of the
// event, and of the build. position is what has settled until now. Faults:
// "not_found"; "no_files", "too_many_builds" (409).
func Request(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug string, event uuid.UUID) (r Ref, position int64, err error) {
	s, err := lock(ctx, tx, owner, slug)
	if err != nil {
		return r, 0, err
	}
	if s.FileCount == 0 {
		return r, 0, fault.New(fault.Conflict, "no_files", "The site has no files, so there is nothing to build.")
	}
	var open int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM microsite_builds WHERE owner_id = $1 AND position IS NULL`, owner).Scan(&open); err != nil {
		return r, 0, err
	}
	if open >= MaxOpen {
		return r, 0, &fault.Fault{Kind: fault.Conflict, Code: "too_many_builds", RetryAfter: 5 * time.Second,
			Detail: "So many of your builds are under way that no other can be asked for. Wait until some have settled."}
	}
	r = Ref{BuildID: event, Status: Queued}
	if err := tx.QueryRow(ctx, `
		WITH s AS (UPDATE microsites SET builds = builds + 1 WHERE id = $1 RETURNING builds)
		INSERT INTO microsite_builds (id, owner_id, site_id, number, version) SELECT $2, $3, $1, builds, $4 FROM s RETURNING number`,
		s.ID, event, owner, s.version).Scan(&r.Number); err != nil {
		return r, 0, err
	}
	if position, err = Position(ctx, tx, owner); err != nil {
		return r, 0, err
	}
	return r, position, outbox.Record(ctx, tx, event, outbox.BuildRequested, owner, event.String(),
		map[string]any{"build_id": event, "site_id": s.ID, "slug": s.Slug, "number": r.Number})
}

// Source is what a builder works on.
type Source struct {
	OwnerID uuid.UUID
	Handle  string
	Slug    string
	Title   string
	Files   []File
}

// StartBuild says that a build is under way, and reads what it is of. open is false for
// one that has settled, or is none. A site that was deleted has no files.
func StartBuild(ctx context.Context, tx *pg.Tx, id uuid.UUID) (src Source, open bool, err error) {
	var site uuid.UUID
	var version int64
	err = tx.QueryRow(ctx, `
		UPDATE microsite_builds b SET state = 'building' FROM microsites s, owners o
		WHERE b.id = $1 AND b.state IN ('queued', 'building') AND s.id = b.site_id AND o.id = b.owner_id
		RETURNING b.owner_id, o.handle, s.slug, s.title, s.id, b.version`, id).Scan(&src.OwnerID, &src.Handle, &src.Slug, &src.Title, &site, &version)
	if pg.IsNoRows(err) {
		return src, false, nil
	}
	if err != nil {
		return src, false, err
	}
	rows, err := tx.Query(ctx, `
		SELECT path, content FROM microsite_files WHERE site_id = $1 AND added <= $2 AND (removed IS NULL OR removed > $2) ORDER BY path`, site, version)
	if err != nil {
		return src, false, err
	}
	src.Files, err = pgx.CollectRows(rows, pgx.RowToStructByPos[File])
	return src, true, err
}

// Blobs says which blobs an attempt is about to put, so that they are found when
// the build is forgotten.
func Blobs(ctx context.Context, db *pg.DB, id uuid.UUID, keys []string) error {
	_, err := db.Exec(ctx, `
		UPDATE microsite_builds SET blobs = (SELECT array_agg(DISTINCT k) FROM unnest(blobs || $2::text[]) k) WHERE id = $1`, id, keys)
	return pg.Fault(err)
}

// Output is a file that a build serves.
type Output struct {
	// Path is relative to the site's address.
	Path string
	// Blob is its key in the store.
	Blob        string
	SHA256      []byte
	Size        int
	ContentType string
}

// Settle ends a build, once: with what it serves, or without. Its owner's waiters
// are woken. It reports false for one that has settled before.
func Settle(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID, status Status, log []Message, out []Output) (settled bool, err error) {
	log = log[:min(len(log), MaxLog)]
	if log == nil {
		log = []Message{}
	}
	said, err := json.Marshal(log)
	if err != nil {
		return false, err
	}
	if err := outbox.Name(ctx, tx, outbox.NewID()); err != nil {
		return false, err
	}
	// jsonb takes no U+0000
	text := strings.ReplaceAll(string(said), `\u0000`, `\ufffd`)
	if err := tx.QueryRow(ctx, `SELECT microsite_settle($1, $2, $3)`, id, string(status), text).Scan(&settled); err != nil || !settled {
		return false, err
	}
	tx.Notify(SettledChannel, owner.String())
	if status != Built {
		return true, nil
	}
	n := len(out)
	paths, blobs, hashes, sizes, types, total := make([]string, n), make([]string, n), make([][]byte, n), make([]int, n), make([]string, n), 0
	for i, o := range out {
		paths[i], blobs[i], hashes[i], sizes[i], types[i] = o.Path, o.Blob, o.SHA256, o.Size, o.ContentType
		total += o.Size
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO microsite_outputs (build_id, path, blob, sha256, size, content_type)
		SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bytea[], $5::int[], $6::text[])`, id, paths, blobs, hashes, sizes, types); err != nil {
		return true, err
	}
	_, err = tx.Exec(ctx, `UPDATE microsite_builds SET files = $2, bytes = $3 WHERE id = $1`, id, n, total)
	return true, err
}

// SettledChannel tells waiters whose builds have settled; payload: owner ids.
const SettledChannel = "standmeet_builds_settled"

// Position is how far an owner's settled builds go.
func Position(ctx context.Context, q pg.Querier, owner uuid.UUID) (p int64, err error) {
	err = q.QueryRow(ctx, `SELECT coalesce((SELECT position FROM microsite_positions WHERE owner_id = $1), 0)`, owner).Scan(&p)
	return p, pg.Fault(err)
}

// PastKey is what somebody waits for who knows an owner's builds up to since.
func PastKey(owner uuid.UUID, since int64) waiter.Key {
	return waiter.Key{Signal: owner.String(), Read: owner.String() + " " + strconv.FormatInt(since, 10)}
}

// SettledSource lets a waiter wait for an owner's builds to settle; keys are of
// [PastKey].
func SettledSource(db *pg.DB) waiter.Source {
	return waiter.Source{Channel: SettledChannel, Read: func(ctx context.Context, keys []string) (map[string]any, error) {
		owners, since := make([]uuid.UUID, len(keys)), make([]int64, len(keys))
		for i, key := range keys {
			owner, position, _ := strings.Cut(key, " ")
			var err error
			if owners[i], err = uuid.Parse(owner); err != nil {
				return nil, err
			}
			if since[i], err = strconv.ParseInt(position, 10, 64); err != nil {
				return nil, err
			}
		}
		rows, err := db.Query(ctx, `
			SELECT k.key FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS k (key, owner_id, since)
			JOIN microsite_positions p ON p.owner_id = k.owner_id AND p.position > k.since`, keys, owners, since)
		if err != nil {
			return nil, err
		}
		found := map[string]any{}
		var key string
		_, err = pgx.ForEachRow(rows, []any{&key}, func() error { found[key] = true; return nil })
		return found, err
	}}
}

// Past is what has settled behind a position.
type Past struct {
	Builds   []Build `json:"builds" jsonschema:"the builds that settled after since, in their order"`
	Position int64   `json:"position" jsonschema:"give it as since the next time"`
	More     bool    `json:"more" jsonschema:"whether more have settled already: ask again at once"`
	Open     int     `json:"open" jsonschema:"how many of your builds have not settled"`
}

// SettledPast reads the builds of an owner that settled after since, at most limit.
func SettledPast(ctx context.Context, q pg.Querier, owner uuid.UUID, since int64, limit int) (p Past, err error) {
	if p.Position, err = Position(ctx, q, owner); err != nil {
		return p, err
	}
	rows, err := q.Query(ctx, buildSQL+`b.owner_id = $1 AND b.position > $2 AND b.position <= $3 ORDER BY b.position LIMIT $4`, owner, since, p.Position, limit+1)
	if err != nil {
		return p, pg.Fault(err)
	}
	if p.Builds, err = pgx.CollectRows(rows, scanBuild); err != nil {
		return p, pg.Fault(err)
	}
	if p.More = len(p.Builds) > limit; p.More {
		p.Builds = p.Builds[:limit]
		p.Position = p.Builds[limit-1].Position
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM microsite_builds WHERE owner_id = $1 AND position IS NULL`, owner).Scan(&p.Open)
	return p, pg.Fault(err)
}

// Forget removes builds that nobody needs any more, at most n, and gives the blobs
// that they leave: builds of deleted sites, and all but the last ones of a site that
// neither are live nor can be by a rollback. Those that were live stay for a week,
// for pages that are still open.
func Forget(ctx context.Context, db *pg.DB, n int) (removed int64, blobs []string, err error) {
	rows, err := db.Query(ctx, `
		DELETE FROM microsite_builds b USING (
			SELECT b.id FROM microsite_builds b JOIN microsites s ON s.id = b.site_id
			WHERE b.settled_at < now() - interval '1 day' AND (s.deleted_at < now() - interval '1 day'
				OR b.number <= s.builds - $1 AND b.id IS DISTINCT FROM s.live_build AND b.id <> ALL (s.history))
			ORDER BY b.settled_at LIMIT $2) old
		WHERE b.id = old.id AND (b.published_at IS NULL OR b.published_at < now() - interval '7 days')
		RETURNING b.blobs`, keepBuilds, n)
	if err != nil {
		return 0, nil, pg.Fault(err)
	}
	var some []string
	if _, err := pgx.ForEachRow(rows, []any{&some}, func() error {
		removed++
		blobs = append(blobs, some...)
		return nil
	}); err != nil {
		return removed, blobs, pg.Fault(err)
	}
	_, err = db.Exec(ctx, `
		DELETE FROM microsites s WHERE deleted_at < now() - interval '8 days' AND NOT EXISTS (SELECT FROM microsite_builds b WHERE b.site_id = s.id)`)
	return removed, blobs, pg.Fault(err)
}
