package webhooks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/webhook"
)

// Create declares webhooks.create. Faults: "too_many_webhooks",
// "keys_not_configured" (409).
func Create(d Deps) *op.Operation {
	type in struct {
		URL         string   `json:"url" minLength:"1" maxLength:"2048" jsonschema:"an https address of the public internet"`
		EventTypes  []string `json:"event_types" maxItems:"50" minLength:"1" maxLength:"100" jsonschema:"event types or globs, e.g. [\"booking.*\"]; webhooks.event_types lists what there is"`
		Description string   `json:"description,omitempty" maxLength:"300" jsonschema:"what it is for"`
		Ordered     bool     `json:"ordered,omitempty" jsonschema:"true: strictly in event order; one that fails then holds up those after it"`
	}
	return op.NewWrite(op.Spec{
		Name: "webhooks.create", Method: "POST", Path: "/v1/webhooks", Scope: "webhooks:write", Status: 201,
		Summary: "Create a webhook",
		Description: `Has events posted to an address from now on, signed as Standard Webhooks has it, and shows the signing secret once. Example: {"url": "https://example.com/hook", "event_types": ["booking.*", "corpus.note.changed"]}. ` +
			"A body holds type, timestamp and data with ids and small facts; ask the API for more. The same event may arrive more than once: webhook-id names it.",
		Tool: &op.Tool{OpenWorld: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (made sealed, err error) {
		if err := d.keyed(); err != nil {
			return made, err
		}
		e := webhook.Endpoint{Description: in.Description, Ordered: in.Ordered}
		if e.URL, err = d.address(in.URL); err != nil {
			return made, err
		}
		if e.EventTypes, err = webhook.Subscription(in.EventTypes); err != nil {
			return made, err
		}
		made.Endpoint, made.Sealed, err = webhook.Create(ctx, tx, d.Keys, c.OwnerID, e)
		return made, err
	}, d.reveal)
}
