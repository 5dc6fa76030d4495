package corpus

import (
	"context"
	"net/http"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Create declares corpus.create.
func Create(d Deps) *op.Operation {
	type in struct {
		Genre notes.Genre `json:"genre" enum:"raw,wiki,output" jsonschema:"raw: as it came in, e.g. a quick thought or a clipping. wiki: a page of the knowledge base. output: a finished text."`
		Fields
	}
	return op.NewWrite(op.Spec{
		Name: "corpus.create", Method: "POST", Path: "/v1/corpus", Status: http.StatusCreated, Scope: "corpus:write",
		Summary: "Create a note",
		Description: `Saves a new note and waits up to 2 s until search finds it. Example: {"genre": "wiki", "title": "Solar panels", "body": "They need [[Sunlight]].", "tags": ["energy"]}. ` +
			`A raw note needs a body or a title, the others a title. indexed: false means that the note is saved but search may not find it yet: don't create it again, follow index_job_id with tasks.get.`,
		Tool: &op.Tool{}, MaxBody: maxBody, MaxWait: maxWait, Say: say,
		Headers: []op.Header{etag(), {Name: "Location", Description: "Where the note is read.", Value: func(out any) string { return "/v1/corpus/" + out.(Written).Note.ID.String() }}},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (s saved, err error) {
		s.Event = outbox.NewID()
		s.receipt = d.expect(ctx, s.Event)
		draft := notes.Draft{
			Genre: in.Genre, Title: in.Title.Value, Body: in.Body.Value, Tags: in.Tags.Value, Aliases: in.Aliases.Value,
			Visibility: in.Visibility.Value, ShowAsSource: in.ShowAsSource.Value, Source: in.Source.Value,
		}
		if in.ParentID.Set && !in.ParentID.Null {
			draft.ParentID = &in.ParentID.Value
		}
		s.Note, err = notes.Create(ctx, tx, c.OwnerID, s.Event, draft)
		return s, err
	}, d.answer)
}
