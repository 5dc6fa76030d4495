package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/jobfeed"
	"standmeet/shared/op"
)

// List declares jobs.list.
func List(d Deps) *op.Operation {
	type in struct {
		SourceID *uuid.UUID `json:"source_id,omitempty" jsonschema:"only listings of this source"`
		Q        string     `json:"q,omitempty" maxLength:"200" jsonschema:"only listings with this text in title, company, location or description"`
		Since    *time.Time `json:"since,omitempty" jsonschema:"only listings first seen since then (RFC 3339)"`
		op.Paging
	}
	type position struct {
		ID uuid.UUID `json:"i"`
	}
	return op.New(op.Spec{
		Name: "jobs.list", Method: "GET", Path: "/v1/jobs", Scope: "jobs:read",
		Summary:     "List job listings",
		Description: "Lists the pool of all that was ever found, last found first, without descriptions; jobs.show has them. It fetches nothing: jobs.fetch_new does.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[jobfeed.Listing], err error) {
		var at position
		if err := op.DecodeCursor(in.Cursor, &at); err != nil {
			return page, err
		}
		f := jobfeed.Filter{Text: in.Q}
		if in.SourceID != nil {
			f.Source = *in.SourceID
		}
		if in.Since != nil {
			f.Since = *in.Since
		}
		var next uuid.UUID
		page.Items, next, page.Total, err = jobfeed.Pool(ctx, d.DB, c.OwnerID, f, at.ID, in.Limit)
		if next != (uuid.UUID{}) {
			page.NextCursor = op.EncodeCursor(position{next})
		}
		return page, err
	})
}

// Show declares jobs.show.
func Show(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the listing's id"`
	}
	type out struct {
		Listing jobfeed.Listing `json:"listing"`
	}
	return op.New(op.Spec{
		Name: "jobs.show", Method: "GET", Path: "/v1/jobs/{id}", Scope: "jobs:read",
		Summary:     "Read a job listing",
		Description: "Reads one listing with its description as plain text.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		o.Listing, err = jobfeed.Get(ctx, d.DB, c.OwnerID, in.ID)
		return o, err
	})
}
