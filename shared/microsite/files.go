package microsite

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/text/unicode/norm"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// The limits of a site's files.
const (
	MaxFiles = 200
	MaxFile  = 64 << 10
	maxPath  = 200
	maxDepth = 8
)

// Assets is the directory of what a build makes. No file of a site lies in it.
const Assets = "_a"

// File is a file of a site.
type File struct {
	Path    string
	Content []byte
}

// Listed is what a list tells of a file.
type Listed struct {
	Path        string `json:"path"`
	Size        int    `json:"size"`
	SHA256      string `json:"sha256"`
	ContentType string `json:"content_type"`
}

// types are the content types by what a name ends in.
func types() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".css": "text/css; charset=utf-8",
		".js": "text/javascript; charset=utf-8", ".ts": "text/plain; charset=utf-8", ".jsx": "text/plain; charset=utf-8", ".tsx": "text/plain; charset=utf-8",
		".json": "application/json", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
		".webp": "image/webp", ".avif": "image/avif", ".svg": "image/svg+xml", ".ico": "image/x-icon",
	}
}

// ContentType is that of a file by its name; "" for one that no site may have.
func ContentType(name string) string { return types()[strings.ToLower(path.Ext(name))] }

// IsImage reports whether a name is that of an image.
func IsImage(name string) bool { return strings.HasPrefix(ContentType(name), "image/") }

var partSyntax = regexp.MustCompile(`^[\p{L}\p{N}\p{M}_@(+][\p{L}\p{N}\p{M} ._@()+-]*$`)

// CleanPath gives the path of a file as it is kept, in NFC. why says in words what
// is wrong with it.
func CleanPath(p string) (clean, why string) {
	if !utf8.ValidString(p) {
		return "", "is not UTF-8"
	}
	p = norm.NFC.String(p)
	switch {
	case strings.Contains(p, `\`):
		return "", "must have / between its parts, and no backslash"
	case strings.HasPrefix(p, "/"):
		return "", "must be relative, without / at its beginning"
	case len(p) > maxPath:
		return "", fmt.Sprintf("is longer than %d bytes", maxPath)
	}
	parts := strings.Split(p, "/")
	if len(parts) > maxDepth {
		return "", fmt.Sprintf("lies in more than %d folders", maxDepth-1)
	}
	for _, part := range parts {
		if part == ".." || part == "." || part == "" {
			return "", "must not have empty parts, . or .."
		}
		if !partSyntax.MatchString(part) || strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
			return "", "may hold letters, digits and ._-@()+ and spaces between, and its parts must not begin with a dot"
		}
	}
	if parts[0] == Assets {
		return "", "must not lie in " + Assets + ", where a build puts what it makes"
	}
	if ContentType(p) == "" {
		return "", "must end in .html, .md, .css, .js, .ts, .jsx, .tsx, .json, .png, .jpg, .jpeg, .gif, .webp, .avif, .svg or .ico"
	}
	return p, ""
}

// Change is a change of a site's files.
type Change struct {
	// Files are added, or replace those of their paths.
	Files []File
	// Remove are paths; one that is not there is fine.
	Remove []string
	// All: the site has no other files than Files afterwards.
	All bool
}

// Counts says what a change did.
type Counts struct {
	Added     int `json:"added"`
	Replaced  int `json:"replaced"`
	Unchanged int `json:"unchanged"`
	Deleted   int `json:"deleted"`
}

// Put changes the files of a site, all or nothing. Faults: "not_found";
// "invalid_request" (400) naming the fields; "too_many_files" (413).
func Put(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug string, ch Change) (Site, Counts, error) {
	s, err := lock(ctx, tx, owner, slug)
	if err != nil {
		return s, Counts{}, err
	}
	counts, err := put(ctx, tx, s, ch)
	if err != nil {
		return s, counts, err
	}
	if counts.Added+counts.Replaced+counts.Deleted > 0 {
		if err := record(ctx, tx, outbox.MicrositeChanged, owner, s, nil); err != nil {
			return s, counts, err
		}
	}
	s, err = Get(ctx, tx, owner, slug)
	return s, counts, err
}

func put(ctx context.Context, tx *pg.Tx, s Site, ch Change) (n Counts, err error) {
	given, err := ch.check()
	if err != nil {
		return n, err
	}
	rows, err := tx.Query(ctx, `SELECT path_key, path, sha256 FROM microsite_files WHERE site_id = $1 AND removed IS NULL`, s.ID)
	if err != nil {
		return n, err
	}
	type held struct {
		path string
		hash [sha256.Size]byte
	}
	there := map[string]held{}
	var key, name string
	var hash []byte
	if _, err := pgx.ForEachRow(rows, []any{&key, &name, &hash}, func() error {
		there[key] = held{name, [sha256.Size]byte(hash)}
		return nil
	}); err != nil {
		return n, err
	}
	var gone, paths, keys []string
	var hashes, contents [][]byte
	for key, f := range given {
		was, known := there[key]
		sum := sha256.Sum256(f.Content)
		switch {
		case known && was.path == f.Path && was.hash == sum:
			n.Unchanged++
			continue
		case known:
			n.Replaced++
			gone = append(gone, key)
		default:
			n.Added++
		}
		paths, keys, hashes, contents = append(paths, f.Path), append(keys, key), append(hashes, sum[:]), append(contents, append([]byte{}, f.Content...))
	}
	for key := range there {
		_, kept := given[key]
		if !kept && (ch.All || slices.ContainsFunc(ch.Remove, func(p string) bool { return fold(norm.NFC.String(p)) == key })) {
			n.Deleted++
			gone = append(gone, key)
		}
	}
	if total := len(there) + n.Added - n.Deleted; total > MaxFiles {
		return n, fault.New(fault.TooLarge, "too_many_files", fmt.Sprintf("The site would have %d files, and may have %d. Nothing was changed.", total, MaxFiles))
	}
	if len(gone)+len(paths) == 0 {
		return n, nil
	}
	next := s.version + 1
	if _, err := tx.Exec(ctx, `UPDATE microsite_files SET removed = $3 WHERE site_id = $1 AND path_key = ANY ($2) AND removed IS NULL`, s.ID, gone, next); err != nil {
		return n, err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO microsite_files (site_id, path, path_key, added, sha256, content)
		SELECT $1, path, key, $2, hash, content FROM unnest($3::text[], $4::text[], $5::bytea[], $6::bytea[]) AS f (path, key, hash, content)`,
		s.ID, next, paths, keys, hashes, contents); err != nil {
		return n, err
	}
	// what no unsettled build needs
	if _, err := tx.Exec(ctx, `
		DELETE FROM microsite_files f WHERE site_id = $1 AND removed IS NOT NULL AND NOT EXISTS (
			SELECT FROM microsite_builds b WHERE b.site_id = $1 AND b.position IS NULL AND b.version >= f.added AND b.version < f.removed)`, s.ID); err != nil {
		return n, err
	}
	_, err = tx.Exec(ctx, `UPDATE microsites SET version = $2, updated_at = clock_timestamp() WHERE id = $1`, s.ID, next)
	return n, err
}

func fold(p string) string { return strings.ToLower(p) }

// check gives the files by their folded paths, or says which are wrong.
func (ch Change) check() (map[string]File, error) {
	given := map[string]File{}
	var wrong []fault.Field
	refuse := func(i int, part, code, why string) {
		name := fmt.Sprintf("files[%d].%s", i, part)
		wrong = append(wrong, fault.Field{Name: name, Code: code, Detail: name + " " + why + "."})
	}
	for i, f := range ch.Files {
		clean, why := CleanPath(f.Path)
		if why != "" {
			refuse(i, "path", "invalid_format", why)
			continue
		}
		if other, twice := given[fold(clean)]; twice {
			refuse(i, "path", "duplicate_path", fmt.Sprintf("is the same as %q, but for its case perhaps", other.Path))
		}
		switch {
		case len(f.Content) > MaxFile:
			refuse(i, "content", "too_large", fmt.Sprintf("has %d bytes, and a file may have %d", len(f.Content), MaxFile))
		case !IsImage(clean) && (!utf8.Valid(f.Content) || strings.ContainsRune(string(f.Content), 0)):
			refuse(i, "content", "invalid_text", "is no text in UTF-8")
		}
		given[fold(clean)] = File{clean, f.Content}
	}
	if len(wrong) > 0 {
		return nil, &fault.Fault{Kind: fault.Invalid, Code: "invalid_request", Detail: wrong[0].Detail + " Nothing was changed.", Fields: wrong}
	}
	return given, nil
}

// Files lists the files of a site by their paths.
func Files(ctx context.Context, q pg.Querier, site uuid.UUID) ([]Listed, error) {
	rows, err := q.Query(ctx, `SELECT path, octet_length(content), sha256 FROM microsite_files WHERE site_id = $1 AND removed IS NULL ORDER BY path`, site)
	if err != nil {
		return nil, pg.Fault(err)
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Listed, err error) {
		var hash []byte
		err = row.Scan(&l.Path, &l.Size, &hash)
		l.SHA256, l.ContentType = hex.EncodeToString(hash), ContentType(l.Path)
		return l, err
	})
	return items, pg.Fault(err)
}

// Read reads a file of a site; fault "not_found".
func Read(ctx context.Context, q pg.Querier, site uuid.UUID, p string) (f File, err error) {
	err = q.QueryRow(ctx, `SELECT path, content FROM microsite_files WHERE site_id = $1 AND path_key = $2 AND removed IS NULL`, site, fold(norm.NFC.String(p))).
		Scan(&f.Path, &f.Content)
	if pg.IsNoRows(err) {
		return f, fault.NotFound("file")
	}
	return f, pg.Fault(err)
}
