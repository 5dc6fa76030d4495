package microsites

import (
	"context"
	"encoding/base64"
	"unicode/utf8"

	"standmeet/shared/auth"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
)

// Get declares microsites.get.
func Get(d Deps) *op.Operation {
	type out struct {
		Site  microsite.Site     `json:"site"`
		Files []microsite.Listed `json:"files" jsonschema:"by their paths"`
	}
	return op.New(op.Spec{
		Name: "microsites.get", Method: "GET", Path: "/v1/microsites/{slug}", Scope: "microsites:read",
		Summary:     "Read a microsite",
		Description: "Tells of a microsite: its address, its files without their content, the build that is live, and the last one that was asked for.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in named) (o out, err error) {
		s, err := microsite.Get(ctx, d.DB, c.OwnerID, in.Slug)
		if err != nil {
			return o, err
		}
		o.Site = d.place(c, s)
		o.Files, err = microsite.Files(ctx, d.DB, s.ID)
		return o, err
	})
}

// GetFile declares microsites.get_file.
func GetFile(d Deps) *op.Operation {
	type in struct {
		named
		Path string `json:"path" path:"path" maxLength:"400" jsonschema:"the file's path"`
	}
	return op.New(op.Spec{
		Name: "microsites.get_file", Method: "GET", Path: "/v1/microsites/{slug}/files/{path...}", Scope: "microsites:read",
		Summary:     "Read a file of a microsite",
		Description: "Reads a file as microsites.put_files took it; what is no text is in base64.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (o given, err error) {
		s, err := microsite.Get(ctx, d.DB, c.OwnerID, in.Slug)
		if err != nil {
			return o, err
		}
		f, err := microsite.Read(ctx, d.DB, s.ID, in.Path)
		if err != nil {
			return o, err
		}
		o = given{Path: f.Path, Content: string(f.Content), Encoding: "text"}
		if !utf8.Valid(f.Content) {
			o.Content, o.Encoding = base64.StdEncoding.EncodeToString(f.Content), "base64"
		}
		return o, nil
	})
}
