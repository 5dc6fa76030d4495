package events

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
)

// List declares events.list.
func List(d Deps) *op.Operation {
	type in struct {
		Type    string     `json:"type,omitempty" maxLength:"64" jsonschema:"only this event type, e.g. corpus.note.changed"`
		Status  string     `json:"status,omitempty" enum:"queued,fanned_out,poisoned" jsonschema:"only events in this status"`
		Subject string     `json:"subject,omitempty" maxLength:"200" jsonschema:"only events about this id"`
		Since   *time.Time `json:"since,omitempty" jsonschema:"only events at or after this time (RFC 3339)"`
		op.Paging
	}
	type position struct {
		ID uuid.UUID `json:"i"`
	}
	type out struct {
		op.Page[outbox.Entry]
		Types []string `json:"types" jsonschema:"every event type that can be filtered by"`
	}
	return op.New(op.Spec{
		Name: "events.list", Method: "GET", Path: "/v1/events", Scope: "tasks:read",
		Summary:     "List events",
		Description: "Lists what happened, newest first: each event with whether it was turned into tasks yet. Events are kept for 7 days.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		if _, ok := outbox.Lookup(in.Type); in.Type != "" && !ok {
			return o, fault.InvalidField("type", "not_allowed", "There is no such event type.")
		}
		filter := outbox.Filter{Type: in.Type, Status: outbox.Status(in.Status), Subject: in.Subject}
		if in.Since != nil {
			filter.Since = *in.Since
		}
		var at position
		if err := op.DecodeCursor(in.Cursor, &at); err != nil {
			return o, err
		}
		items, more, total, err := outbox.List(ctx, d.DB, c.OwnerID, filter, at.ID, in.Limit)
		if err != nil {
			return o, err
		}
		o.Items, o.Total = items, total
		if more {
			last, err := uuid.Parse(items[len(items)-1].ID)
			if err != nil {
				return o, err
			}
			o.NextCursor = op.EncodeCursor(position{last})
		}
		for _, t := range outbox.Types() {
			o.Types = append(o.Types, t.Name)
		}
		return o, nil
	})
}
