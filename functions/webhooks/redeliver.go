package webhooks

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/webhook"
)

// Redeliver declares webhooks.redeliver. Faults: "webhook_disabled",
// "delivery_pending" (409).
func Redeliver(d Deps) *op.Operation {
	type in struct {
		named
		DeliveryID *uuid.UUID `json:"delivery_id,omitempty" jsonschema:"the one to repeat, whatever became of it"`
		All        string     `json:"all,omitempty" enum:"discarded,held" jsonschema:"instead of delivery_id: discarded repeats all that were given up and not repeated since; held takes up all that came while the webhook was disabled"`
	}
	type out struct {
		Queued []webhook.Queued `json:"queued"`
		More   int              `json:"more" jsonschema:"how many are left that match all: 1000 are queued at a time"`
	}
	return op.NewWrite(op.Spec{
		Name: "webhooks.redeliver", Method: "POST", Path: "/v1/webhooks/{id}/redeliver", Scope: "webhooks:write", Status: 202,
		Summary: "Queue deliveries again",
		Description: `Queues one delivery again, or all that were given up or held. Example: {"id": "…", "all": "discarded"}. One that has ended gets a new delivery with the same webhook-id and body, each time that it is asked for; one that was held goes on. ` +
			"It ends a cool-down. What becomes of each, its job_id tells.",
		Tool: &op.Tool{OpenWorld: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (o out, err error) {
		o.Queued = []webhook.Queued{}
		switch {
		case (in.DeliveryID != nil) == (in.All != ""):
			return o, fault.InvalidField("delivery_id", "missing_field", "Give either delivery_id or all.")
		case in.DeliveryID != nil:
			q, err := webhook.Redeliver(ctx, tx, c.OwnerID, in.ID, *in.DeliveryID)
			o.Queued = append(o.Queued, q)
			return o, err
		}
		o.Queued, o.More, err = webhook.RedeliverAll(ctx, tx, c.OwnerID, in.ID, webhook.State(in.All))
		return o, err
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}
