package microsites

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// PutFiles declares microsites.put_files. Faults: "invalid_request" (400) naming
// the fields, "too_many_files" (413).
func PutFiles(d Deps) *op.Operation {
	type in struct {
		named
		Files      []given  `json:"files,omitempty" maxItems:"200" jsonschema:"files to add, or to put in place of those of their paths"`
		Delete     []string `json:"delete,omitempty" maxItems:"200" maxLength:"400" jsonschema:"paths of files to delete; one that is not there is fine"`
		ReplaceAll bool     `json:"replace_all,omitempty" jsonschema:"true: files are all files of the site, every other one is deleted"`
	}
	type out struct {
		Site  microsite.Site   `json:"site"`
		Files microsite.Counts `json:"files" jsonschema:"what became of the files"`
	}
	return op.NewWrite(op.Spec{
		Name: "microsites.put_files", Method: "PUT", Path: "/v1/microsites/{slug}/files", Scope: "microsites:write",
		Summary: "Add, replace and delete files of a microsite",
		Description: `Changes the files of a microsite, all of it or nothing; files that are not named stay. Example: {"slug": "talk", "files": [{"path": "style.css", "content": "body { margin: 2rem }"}], "delete": ["old.css"]}. ` + guide +
			" A build that was asked for before is of the files as they were then.",
		Tool: &op.Tool{Destructive: true, Idempotent: true}, MaxBody: maxBody,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (o out, err error) {
		ch := microsite.Change{Remove: in.Delete, All: in.ReplaceAll}
		if ch.Files, err = decode(in.Files); err != nil {
			return o, err
		}
		o.Site, o.Files, err = microsite.Put(ctx, tx, c.OwnerID, in.Slug, ch)
		return o, err
	}, func(_ context.Context, c auth.Caller, o out) (out, error) {
		o.Site = d.place(c, o.Site)
		return o, nil
	})
}
