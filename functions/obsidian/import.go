package obsidian

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/vault"
)

// Imported answers obsidian.import. The counts are of what was committed.
type Imported struct {
	Created     int           `json:"created" jsonschema:"files that became notes"`
	Updated     int           `json:"updated" jsonschema:"files whose notes were changed"`
	Unchanged   int           `json:"unchanged" jsonschema:"files whose notes were left as they are"`
	Deleted     int           `json:"deleted" jsonschema:"notes that went to the trash because an authoritative import lacks their files"`
	Skipped     []vault.Entry `json:"skipped" jsonschema:"files and notes that were left alone, each with the reason"`
	Errors      []vault.Entry `json:"errors" jsonschema:"files that could not be taken as they are, each with the reason"`
	Warnings    []vault.Entry `json:"warnings" jsonschema:"files that were taken, and what of them was not"`
	Folders     Changed       `json:"folders" jsonschema:"notes made for folders without a note of their own, so that notes can stand under them"`
	Attachments Changed       `json:"attachments"`
	Links       Links         `json:"links" jsonschema:"where the links of created and updated notes lead"`
	Pruned      bool          `json:"pruned" jsonschema:"whether notes and attachments that the import lacks were looked for: it was authoritative, not empty and without errors"`
	Index       Indexing      `json:"index"`
	Sentence    string        `json:"sentence" jsonschema:"what can truthfully be said about the indexing now"`
}

// Changed counts what is no note's file.
type Changed struct {
	Created   int `json:"created"`
	Unchanged int `json:"unchanged"`
	Deleted   int `json:"deleted"`
}

// Indexing is how far search is.
type Indexing struct {
	Pending int64 `json:"pending" jsonschema:"how many of the vault's notes search doesn't know as they are; -1 when that can't be read right now"`
}

// Links tells of the links of an import.
type Links struct {
	Resolved   int       `json:"resolved" jsonschema:"how many lead to one note or attachment"`
	Unresolved []Dangler `json:"unresolved" jsonschema:"those that lead nowhere, 1000 at most"`
	Ambiguous  []Dangler `json:"ambiguous" jsonschema:"those that may lead to several, and lead to none; 1000 at most"`
	Truncated  bool      `json:"truncated,omitempty" jsonschema:"there are more"`
}

// Dangler is a link that leads to nothing.
type Dangler struct {
	Path   string `json:"path" jsonschema:"the file that has the link"`
	Target string `json:"target"`
}

// maxDanglers bounds each list of links.
const maxDanglers = 1_000

type given struct {
	Path     string `json:"path" minLength:"1" maxLength:"1000" jsonschema:"e.g. \"wiki/folder/Note.md\""`
	Content  string `json:"content" jsonschema:"the file's text"`
	Encoding string `json:"encoding,omitempty" enum:"text,base64" jsonschema:"base64 for an attachment; text if left out"`
}

// asked is what an import may be asked.
type asked struct {
	Files         []given `json:"files,omitempty" maxItems:"20000" jsonschema:"the files themselves"`
	UploadKey     string  `json:"upload_key,omitempty" maxLength:"100" jsonschema:"of a zip that was uploaded to where obsidian.upload_url said; instead of files"`
	Authoritative bool    `json:"authoritative,omitempty" jsonschema:"true: these are all files of the vault, so notes that came from a vault and are not among them go to the trash. Only if there are files, and none of them in errors"`
	Overwrite     bool    `json:"overwrite,omitempty" jsonschema:"true: where a note was changed both here and in the vault, or is here already and came from elsewhere, the vault's text replaces it. If left out, such a file is in errors and the note is kept"`
}

// prepared is an import before its transaction.
type prepared struct {
	asked
	upload *vault.Upload
	// notes are what the files say, by their place in upload.Files; nil where the file
	// was known already.
	notes []*parsed
}

type parsed struct {
	vault.Note
	err error
}

// committed is what is kept of an import.
type committed struct {
	Imported
	UploadKey string `json:"upload_key"`
}

// Import declares obsidian.import. Faults: "missing_field", "not_a_zip",
// "malformed_base64", "ambiguous_upload" (400), "too_many_files",
// "vault_too_large", "zip_bomb" (413), not_found for an upload that isn't there,
// "blobs_unavailable" (503), "changed_meanwhile" (409).
func Import(d Deps) *op.Operation {
	return op.NewPreparedWrite(op.Spec{
		Name: "obsidian.import", Method: "POST", Path: "/v1/obsidian/import", Scope: "obsidian:write",
		Summary: "Import a vault, or some of its files",
		Description: `Imports files of an Obsidian vault as notes, all in one committed step, and says what became of each. Example: {"files": [{"path": "wiki/Energy/Solar panels.md", "content": "---\ntags: [energy]\n---\nThey need [[Sunlight]]."}]}. ` +
			"The top folders raw, wiki and output are genres, everything else is wiki; other folders become parents. publish: true in the front matter makes a note public and false makes it private; without it who may read the note stays as it is, private for a new one. " +
			"Files that are the same as at the last import change nothing, and files that are left out stay, unless authoritative is true. Over HTTP also as a zip or as multipart/form-data; a zip above 4 MiB by obsidian.upload_url.",
		Tool: &op.Tool{Destructive: true, Idempotent: true}, Uploads: []string{"application/zip", "application/x-zip-compressed"},
		MaxBody: maxBody, Timeout: timeout, Memory: 3008, Say: func(out any) string { return out.(Imported).Sentence },
		Failed: func(_ context.Context, _ auth.Caller, err error) error {
			var e *pgconn.PgError
			if errors.As(err, &e) && e.Code == "40001" {
				return &fault.Fault{Kind: fault.Conflict, Code: "changed_meanwhile", RetryAfter: time.Second, Err: err,
					Detail: "Notes were changed while they were imported, or files swapped their names. Nothing was changed; try again, files that swapped names one after the other."}
			}
			return err
		},
	}, d.DB, d.prepare, d.commit, d.answer)
}

// timeout is as long as a gateway waits at all. An import that isn't done by then
// has changed nothing.
const timeout = 29 * time.Second

func (d Deps) prepare(ctx context.Context, c auth.Caller, in asked) (p prepared, err error) {
	progress := op.CallFrom(ctx).Progress
	progress(0, 4, "reading")
	p.asked = in
	letGo, err := d.open(ctx, c.OwnerID, &p)
	if err != nil {
		return p, err
	}
	defer letGo()
	// read again in the transaction; this only tells what needs no work
	known, err := vault.Rows(ctx, d.DB, c.OwnerID)
	if err != nil {
		return p, err
	}
	progress(1, 4, fmt.Sprintf("reading %d files", len(p.upload.Files)))
	if p.notes, err = parseAll(ctx, p.upload.Files, known); err != nil {
		return p, err
	}
	progress(2, 4, "storing attachments")
	return p, d.store(ctx, c.OwnerID, p.upload.Files, known)
}

// open reads the vault from wherever it is. The function that it gives lets go of
// what attachments are read from.
func (d Deps) open(ctx context.Context, owner uuid.UUID, p *prepared) (letGo func(), err error) {
	letGo = func() {}
	uploads := op.CallFrom(ctx).Files
	ways := 0
	for _, given := range []bool{len(p.Files) > 0, p.UploadKey != "", len(uploads) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return letGo, fault.New(fault.Invalid, "ambiguous_upload", "Send files or an upload_key, not both.")
	case p.UploadKey != "":
		file, err := d.fetch(ctx, owner, p.UploadKey)
		if err != nil {
			return letGo, err
		}
		letGo = func() { _ = file.Close(); _ = os.Remove(file.Name()) }
		info, err := file.Stat()
		if err == nil {
			p.upload, err = vault.ReadZip(file, info.Size())
		}
		return letGo, err
	case len(uploads) > 0:
		for _, u := range uploads {
			if !isZip(u) {
				continue
			}
			if len(uploads) > 1 {
				return letGo, fault.New(fault.Invalid, "ambiguous_upload", "Send one zip, or the files themselves.")
			}
			p.upload, err = vault.ReadZip(bytes.NewReader(u.Content), int64(len(u.Content)))
			return letGo, err
		}
		var files []vault.Given
		for _, u := range uploads {
			files = append(files, vault.Given{Path: u.Name, Content: u.Content})
		}
		p.upload, err = vault.ReadFiles(files)
		return letGo, err
	case len(p.Files) > 0:
		var files []vault.Given
		for i, f := range p.Files {
			content := []byte(f.Content)
			if f.Encoding == "base64" {
				if content, err = base64.StdEncoding.DecodeString(f.Content); err != nil {
					return letGo, fault.InvalidField(fmt.Sprintf("files[%d].content", i), "malformed_base64", "The content is not base64.")
				}
			}
			files = append(files, vault.Given{Path: f.Path, Content: content})
		}
		p.upload, err = vault.ReadFiles(files)
		return letGo, err
	}
	return letGo, fault.InvalidField("files", "missing_field", "Send files, a zip, or the upload_key of one.")
}

func isZip(u op.Upload) bool {
	return u.Name == "" || strings.HasSuffix(strings.ToLower(u.Name), ".zip") || strings.HasPrefix(u.ContentType, "application/zip") ||
		strings.HasPrefix(u.ContentType, "application/x-zip")
}

// fetch copies an upload to a file, as a zip is read from its end.
func (d Deps) fetch(ctx context.Context, owner uuid.UUID, key string) (_ *os.File, err error) {
	if id, err := uuid.Parse(key); err != nil || id.String() != key {
		return nil, fault.NotFound("upload")
	}
	o, err := d.Blobs.Get(ctx, uploadBlob(owner, key))
	if f := fault.From(err); f != nil && f.Kind == fault.NotFoundKind {
		return nil, fault.NotFound("upload")
	}
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	file, err := os.CreateTemp("", "vault-*.zip")
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(file, io.LimitReader(o.Body, vault.MaxUnpacked+1))
	if err == nil && n > vault.MaxUnpacked {
		err = fault.New(fault.TooLarge, "vault_too_large", fmt.Sprintf("A zip may have %d MiB at most. Nothing was changed.", vault.MaxUnpacked>>20))
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
		return nil, err
	}
	return file, nil
}

// same reports whether a file is as it was when its row was written.
func same(known map[string]vault.Row, f *vault.File) bool {
	r, ok := known[vault.Key(f.Path)]
	return ok && r.Kind == f.Kind && bytes.Equal(r.Hash, f.Hash[:])
}

func parse(f *vault.File) *parsed {
	n, err := vault.Parse(f.Content)
	return &parsed{n, err}
}

func parseAll(ctx context.Context, files []vault.File, known map[string]vault.Row) ([]*parsed, error) {
	notes := make([]*parsed, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range files {
		if f := &files[i]; f.Kind == vault.NoteFile && !same(known, f) {
			group.Go(func() error {
				notes[i] = parse(f)
				return ctx.Err()
			})
		}
	}
	return notes, group.Wait()
}

// store puts the attachments that are new into the store of blobs, each content
// once. Blobs of an import that fails afterwards are nobody's, and found again by
// the next one.
func (d Deps) store(ctx context.Context, owner uuid.UUID, files []vault.File, known map[string]vault.Row) error {
	stored := map[string]bool{}
	for _, r := range known {
		stored[string(r.Hash)] = r.Kind == vault.Asset || stored[string(r.Hash)]
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range files {
		f := &files[i]
		if f.Kind != vault.Asset || stored[string(f.Hash[:])] {
			continue
		}
		stored[string(f.Hash[:])] = true
		group.Go(func() error {
			content, err := f.Read()
			if err != nil {
				return err
			}
			return d.Blobs.Put(ctx, vault.BlobKey(owner, f.Hash[:]), content, blob.Meta{ContentType: vault.ContentType(f.Path)})
		})
	}
	return group.Wait()
}

func (d Deps) commit(ctx context.Context, tx *pg.Tx, c auth.Caller, p prepared) (done committed, err error) {
	op.CallFrom(ctx).Progress(3, 4, "committing")
	im, err := plan(ctx, tx, c.OwnerID, p)
	if err != nil {
		return done, err
	}
	done.Imported, done.UploadKey = im.out, p.UploadKey
	if err := im.write(ctx, tx); err != nil {
		return done, corpus.Again(err)
	}
	return done, nil
}

// changes reports whether an import changes anything that is told of.
func (o *Imported) changes() bool {
	return o.Created+o.Updated+o.Deleted+o.Folders.Created+o.Folders.Deleted+o.Attachments.Created+o.Attachments.Deleted > 0
}

func (im *importing) event(ctx context.Context, tx *pg.Tx) error {
	if !im.out.changes() {
		return nil
	}
	id := outbox.NewID()
	return outbox.Record(ctx, tx, id, outbox.VaultImported, im.owner, id.String(), map[string]any{
		"created": im.out.Created, "updated": im.out.Updated, "unchanged": im.out.Unchanged, "deleted": im.out.Deleted, "attachments": im.out.Attachments.Created,
	})
}

func (d Deps) answer(ctx context.Context, c auth.Caller, done committed) (Imported, error) {
	if done.UploadKey != "" {
		// one that stays behind costs room until the store expires it
		_ = d.Blobs.Delete(ctx, uploadBlob(c.OwnerID, done.UploadKey))
	}
	out := done.Imported
	var err error
	if out.Index.Pending, err = vaultPending(ctx, d.DB, c.OwnerID); err != nil {
		out.Index.Pending = -1
	}
	out.Sentence = task.VaultImported(out.Index.Pending)
	return out, nil
}

// vaultPending counts the notes from vaults that search doesn't know as they are.
func vaultPending(ctx context.Context, q pg.Querier, owner uuid.UUID) (int64, error) {
	ids, err := vault.NoteIDs(ctx, q, owner)
	if err != nil {
		return 0, err
	}
	return corpus.Unindexed(ctx, q, ids)
}

// reason is an error as an entry says it. One that is no fault of the file is no
// reason.
func reason(err error) (string, bool) {
	var broken *vault.BrokenError
	var f *fault.Fault
	switch {
	case errors.Is(err, vault.ErrText), errors.As(err, &broken):
		return err.Error(), true
	case errors.As(err, &f) && f.Kind != fault.Unavailable && f.Kind != fault.Internal:
		return f.Detail, true
	}
	return "", false
}
