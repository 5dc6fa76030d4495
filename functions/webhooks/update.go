package webhooks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/webhook"
)

// Update declares webhooks.update.
func Update(d Deps) *op.Operation {
	type in struct {
		named
		URL         *string          `json:"url,omitempty" minLength:"1" maxLength:"2048" jsonschema:"an https address of the public internet; what is still to be delivered goes there too"`
		EventTypes  op.Opt[[]string] `json:"event_types,omitzero" maxItems:"50" minLength:"1" maxLength:"100" jsonschema:"replaces the subscription, for events from now on"`
		Description op.Opt[string]   `json:"description,omitzero" maxLength:"300"`
		Ordered     *bool            `json:"ordered,omitempty" jsonschema:"true: strictly in event order; one that fails then holds up those after it"`
		Enabled     *bool            `json:"enabled,omitempty" jsonschema:"false: events are held instead of delivered; true: enabled again, also after it was disabled for failing. What is held stays so until webhooks.redeliver"`
	}
	return op.NewWrite(op.Spec{
		Name: "webhooks.update", Method: "PATCH", Path: "/v1/webhooks/{id}", Scope: "webhooks:write",
		Summary:     "Change a webhook",
		Description: `Changes a webhook: what is left out stays as it is. Example: {"id": "…", "enabled": true}.`,
		Tool:        &op.Tool{Idempotent: true, OpenWorld: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (o Answer, err error) {
		change := webhook.Change{Ordered: in.Ordered, Enabled: in.Enabled}
		if in.URL != nil {
			url, err := d.address(*in.URL)
			if err != nil {
				return o, err
			}
			change.URL = &url
		}
		if in.EventTypes.Set {
			if change.EventTypes, err = webhook.Subscription(in.EventTypes.Value); err != nil {
				return o, err
			}
		}
		if in.Description.Set {
			change.Description = &in.Description.Value
		}
		o.Endpoint, err = webhook.Update(ctx, tx, c.OwnerID, in.ID, change)
		return o, err
	}, func(_ context.Context, _ auth.Caller, o Answer) (Answer, error) { return o, nil })
}
