package webhooks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/webhook"
)

// EventTypes declares webhooks.event_types.
func EventTypes(Deps) *op.Operation {
	type in struct{}
	return op.New(op.Spec{
		Name: "webhooks.event_types", Method: "GET", Path: "/v1/webhooks/event-types", Scope: "webhooks:read",
		Summary:     "List event types",
		Description: "Lists the event types that webhooks can subscribe to, all on one page, with when each happens and which fields its data may have. Of notes only those that are or were public are told of, and raw ones never.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(context.Context, auth.Caller, in) (page op.Page[webhook.EventType], err error) {
		page.Items = webhook.EventTypes()
		page.Total = len(page.Items)
		return page, nil
	})
}
