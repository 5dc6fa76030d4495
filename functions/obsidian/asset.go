package obsidian

import (
	"context"
	"slices"

	"standmeet/shared/auth"
	"standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/text"
	"standmeet/shared/vault"
)

// Asset declares obsidian.asset.
func Asset(d Deps) *op.Operation {
	type in struct {
		Path string `json:"path" path:"path" jsonschema:"the attachment's path in the vault"`
	}
	return op.New(op.Spec{
		Name: "obsidian.asset", Method: "GET", Path: "/v1/obsidian/assets/{path...}", Scope: "obsidian:read",
		Summary:     "Download an attachment",
		Description: "An attachment of a vault, by its path. One above 4 MiB answers with the address that has it (307).",
		Produces:    octets,
	}, func(ctx context.Context, c auth.Caller, in in) (op.File, error) {
		a, err := vault.AssetAt(ctx, d.DB, c.OwnerID, in.Path)
		if err != nil {
			return op.File{}, err
		}
		return d.serve(ctx, c.OwnerID, a, "")
	})
}

// PublicAsset declares public.asset.
func PublicAsset(d Deps) *op.Operation {
	type in struct {
		Handle string       `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Path   string       `json:"path" path:"path" jsonschema:"the attachment's path"`
		Note   string       `json:"note" maxLength:"2000" jsonschema:"the path of the note that shows it"`
		Genre  corpus.Genre `json:"genre,omitempty" enum:"wiki,output" jsonschema:"which note, when one of each genre has the path; wiki if left out"`
	}
	return op.New(op.Spec{
		Name: "public.asset", Method: "GET", Path: "/v1/public/{handle}/assets/{path...}", Access: op.Public,
		Summary:     "Download an attachment as a visitor",
		Description: "An attachment that is embedded in a note which the visitor may read. Without such a note it is not_found.",
		Produces:    octets,
	}, func(ctx context.Context, c auth.Caller, in in) (f op.File, err error) {
		owner, err := corpus.OwnerOf(ctx, d.DB, in.Handle)
		if err != nil {
			return f, err
		}
		seen := []corpus.Visibility{corpus.Public}
		if c.Reads(owner) {
			seen = append(seen, corpus.Coded)
		}
		n, err := corpus.GetPublic(ctx, d.DB, owner, in.Genre, in.Note, seen)
		if err != nil {
			return f, fault.NotFound("attachment")
		}
		a, err := vault.AssetAt(ctx, d.DB, owner, in.Path)
		if err != nil {
			return f, err
		}
		from, err := vault.PathOf(ctx, d.DB, owner, n.ID)
		if err != nil {
			return f, err
		}
		var embeds []string
		for _, l := range text.Extract([]byte(*n.Body)).Links {
			if l.Embed && vault.IsAttachment(l.Target) {
				embeds = append(embeds, l.Target)
			}
		}
		shelf, err := vault.ShelfFor(ctx, d.DB, owner, embeds)
		if err != nil {
			return f, err
		}
		if !slices.ContainsFunc(embeds, func(target string) bool {
			shown, ok, _ := shelf.Find(from, target)
			return ok && shown.Path == a.Path
		}) {
			return f, fault.NotFound("attachment")
		}
		return d.serve(ctx, owner, a, "private, max-age=60")
	})
}
