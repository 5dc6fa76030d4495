package jobs

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/egress"
	"standmeet/shared/fault"
	"standmeet/shared/jobfeed"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// SourceAnswer is a source.
type SourceAnswer struct {
	Source jobfeed.Source `json:"source"`
}

// CreateSource declares job_sources.create. Faults: those of [jobfeed.Create], and
// an address that may not be asked (400).
func CreateSource(d Deps) *op.Operation {
	type in struct {
		Kind  string `json:"kind" enum:"greenhouse,lever,ashby,workable,smartrecruiters,remoteok,rss,atom,json_feed"`
		Board string `json:"board,omitempty" maxLength:"100" jsonschema:"the company's name as it stands in its board's address, e.g. acme in boards.greenhouse.io/acme; not for remoteok and feeds"`
		URL   string `json:"url,omitempty" maxLength:"2048" jsonschema:"the feed's address; only for feeds"`
		Name  string `json:"name,omitempty" maxLength:"200" jsonschema:"what the owner calls it"`
	}
	return op.NewWrite(op.Spec{
		Name: "job_sources.create", Method: "POST", Path: "/v1/job-sources", Scope: "jobs:write", Status: http.StatusCreated,
		Summary:     "Add a source of job listings",
		Description: `Adds a job board or a feed. Examples: {"kind": "greenhouse", "board": "acme"}, {"kind": "rss", "url": "https://example.com/jobs.rss"}. Nothing is fetched yet: call jobs.fetch_new.`,
		Tool:        &op.Tool{},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (a SourceAnswer, err error) {
		draft := jobfeed.Draft{Kind: in.Kind, Board: in.Board, URL: in.URL, Name: in.Name}
		if in.URL != "" {
			u, err := d.Egress.URL(in.URL)
			var refused *egress.Refused
			if errors.As(err, &refused) {
				return a, fault.InvalidField("url", refused.Code, refused.Reason)
			}
			if err != nil {
				return a, err
			}
			draft.URL = u.String()
		}
		a.Source, err = jobfeed.Create(ctx, tx, c.OwnerID, draft)
		return a, err
	}, func(_ context.Context, _ auth.Caller, a SourceAnswer) (SourceAnswer, error) { return a, nil })
}

// ListSources declares job_sources.list.
func ListSources(d Deps) *op.Operation {
	type in struct{ op.Paging }
	return op.New(op.Spec{
		Name: "job_sources.list", Method: "GET", Path: "/v1/job-sources", Scope: "jobs:read",
		Summary:     "List the sources of job listings",
		Description: "Lists the owner's sources, newest first, with when each was last read and why it last failed.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[jobfeed.Source], err error) {
		var after *jobfeed.Cursor
		if in.Cursor != "" {
			after = &jobfeed.Cursor{}
			if err := op.DecodeCursor(in.Cursor, after); err != nil {
				return page, err
			}
		}
		items, next, total, err := jobfeed.List(ctx, d.DB, c.OwnerID, after, in.Limit)
		if next != nil {
			page.NextCursor = op.EncodeCursor(next)
		}
		page.Items, page.Total = items, total
		return page, err
	})
}

// DeleteSource declares job_sources.delete.
func DeleteSource(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the source's id"`
	}
	type out struct {
		Deleted bool `json:"deleted"`
	}
	return op.NewWrite(op.Spec{
		Name: "job_sources.delete", Method: "DELETE", Path: "/v1/job-sources/{id}", Scope: "jobs:write",
		Summary:     "Remove a source of job listings",
		Description: "Removes a source. The listings that it gave stay in the pool.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (out, error) {
		return out{true}, jobfeed.Delete(ctx, tx, c.OwnerID, in.ID)
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}
