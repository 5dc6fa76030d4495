package microsites

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// Create declares microsites.create. Faults: "slug_taken", "too_many_microsites"
// (409), and those of microsites.put_files.
func Create(d Deps) *op.Operation {
	type in struct {
		Slug  string  `json:"slug" minLength:"1" maxLength:"63" jsonschema:"a-z, 0-9 and hyphens: the last part of the site's address"`
		Title string  `json:"title,omitempty" maxLength:"200"`
		Files []given `json:"files,omitempty" maxItems:"200" jsonschema:"its first files"`
	}
	return op.NewWrite(op.Spec{
		Name: "microsites.create", Method: "POST", Path: "/v1/microsites", Scope: "microsites:write", Status: 201,
		Summary: "Create a microsite",
		Description: `Creates a small site, with its first files if you give some. Example: {"slug": "talk", "title": "My talk", "files": [{"path": "index.tsx", "content": "export default () => <h1>Hello</h1>"}]}. ` + guide +
			" Nothing is visible to visitors before microsites.build and microsites.publish.",
		Tool: &op.Tool{}, MaxBody: maxBody,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (s microsite.Site, err error) {
		files, err := decode(in.Files)
		if err != nil {
			return s, err
		}
		return microsite.Create(ctx, tx, c.OwnerID, in.Slug, in.Title, files)
	}, d.answer)
}

// guide is what an author of files has to know.
const guide = "Files are text (.html, .md, .css, .js, .ts, .jsx, .tsx, .json) or images, 200 of 64 KiB at most. Every .html and .md file becomes a page; without index.html or index.md, the default export of index.tsx does. " +
	"react and preact (hooks too) can be imported, nothing else that isn't a file of the site. Scripts and styles are bundled; other servers can't be reached. " +
	"In Markdown, ![[Note]] shows a note and a block fenced as query (lines such as tag: x, search: words, genre: wiki, limit: 10) lists notes: public ones alone, as they are at the build."
