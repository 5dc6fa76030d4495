package corpus

import (
	"context"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Update declares corpus.update.
func Update(d Deps) *op.Operation {
	type in struct {
		ID    uuid.UUID           `json:"id" path:"id" jsonschema:"the note's id"`
		Genre op.Opt[notes.Genre] `json:"genre,omitzero" enum:"raw,wiki,output" jsonschema:"May only repeat the note's genre; corpus.promote is what changes it."`
		Fields
		Precondition
	}
	return op.NewWrite(op.Spec{
		Name: "corpus.update", Method: "PATCH", Path: "/v1/corpus/{id}", Scope: "corpus:write",
		Summary: "Change a note",
		Description: `Changes the given fields of a note, keeps all others, and waits up to 2 s until search knows the change. ` +
			`An absent field stays as it is. An empty text clears it; so does null over HTTP, while as a tool's argument null means absent. Example: {"id": "…", "body": "new text", "version": 3}. ` +
			`A new title or parent_id changes the address of the note and of all notes below it. indexed: false means that the change is saved but search may not know it yet: follow index_job_id with tasks.get.`,
		Tool: &op.Tool{Idempotent: true}, MaxBody: maxBody, MaxWait: maxWait, Say: say,
		Headers: []op.Header{etag()},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (s saved, err error) {
		ch := notes.Change{
			Genre: in.Genre, Title: in.Title, Body: in.Body, ParentID: in.ParentID, Tags: in.Tags, Aliases: in.Aliases,
			Visibility: in.Visibility, ShowAsSource: in.ShowAsSource, Source: in.Source,
		}
		if ch.Version, err = in.version(); err != nil {
			return s, err
		}
		event := outbox.NewID()
		receipt := d.expect(ctx, event)
		if s.Note, s.Count, err = notes.Update(ctx, tx, c.OwnerID, in.ID, event, ch); err != nil || s.Count == 0 {
			receipt.Drop()
			return s, err
		}
		s.Event, s.receipt = event, receipt
		return s, nil
	}, d.answer)
}

// Precondition says which version of a note a write is meant for.
type Precondition struct {
	Version op.Opt[int64]  `json:"version,omitzero" minimum:"1" jsonschema:"The version of the note that you read. If it has another one by now, nothing is changed and the answer is version_conflict."`
	IfMatch op.Opt[string] `json:"if_match,omitzero" header:"If-Match" maxLength:"64" jsonschema:"The same as version, as an HTTP header says it."`
}

// version is the one that is asked for; nil is any.
func (p Precondition) version() (*int64, error) {
	if p.Version.Set && !p.Version.Null {
		return &p.Version.Value, nil
	}
	return ifMatch(p.IfMatch.Value)
}

// ifMatch reads a version out of an entity tag (RFC 9110, section 13.1.1); "*"
// and nothing are any.
func ifMatch(tag string) (*int64, error) {
	tag = strings.TrimSpace(tag)
	if tag == "" || tag == "*" {
		return nil, nil
	}
	version, err := strconv.ParseInt(strings.Trim(strings.TrimPrefix(tag, "W/"), `"`), 10, 64)
	if err != nil {
		return nil, fault.InvalidField("if_match", "invalid_format", `If-Match must be one version of the note, e.g. "3".`)
	}
	return &version, nil
}
