package webhooks

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/webhook"
)

// Deliveries declares webhooks.deliveries.
func Deliveries(d Deps) *op.Operation {
	type in struct {
		named
		EventType string     `json:"event_type,omitempty" maxLength:"100" jsonschema:"only events of this type"`
		EventID   *uuid.UUID `json:"event_id,omitempty" jsonschema:"only deliveries of this event"`
		State     string     `json:"state,omitempty" enum:"pending,delivered,discarded,held,cancelled" jsonschema:"only deliveries in this state"`
		Since     *time.Time `json:"since,omitempty" jsonschema:"only deliveries made since then (RFC 3339)"`
		op.Paging
	}
	type position struct {
		ID uuid.UUID `json:"i"`
	}
	return op.New(op.Spec{
		Name: "webhooks.deliveries", Method: "GET", Path: "/v1/webhooks/{id}/deliveries", Scope: "webhooks:read",
		Summary: "Read a webhook's log",
		Description: "Lists what was, is and could not be delivered to a webhook, newest first, with every attempt: when, how long it took, the status, the first 4 KiB of the answer, and the error in plain words. " +
			"Kept for 30 days. A page ends early when its answers are long.",
		Tool: &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[webhook.Entry], err error) {
		var at position
		if err := op.DecodeCursor(in.Cursor, &at); err != nil {
			return page, err
		}
		f := webhook.Filter{EventType: in.EventType, State: webhook.State(in.State)}
		if in.EventID != nil {
			f.EventID = *in.EventID
		}
		if in.Since != nil {
			f.Since = *in.Since
		}
		var next uuid.UUID
		page.Items, next, page.Total, err = webhook.Log(ctx, d.DB, c.OwnerID, in.ID, f, at.ID, in.Limit)
		if next != (uuid.UUID{}) {
			page.NextCursor = op.EncodeCursor(position{next})
		}
		return page, err
	})
}
