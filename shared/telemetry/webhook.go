package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Webhook counts an attempt to deliver to a webhook, by its outcome in the log.
func (t *Telemetry) Webhook(ctx context.Context, outcome string, took time.Duration) {
	if t != nil {
		t.webhooks.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("standmeet.webhook.outcome", outcome)))
	}
}
