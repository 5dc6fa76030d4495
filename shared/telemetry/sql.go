package telemetry

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// SQL makes a span of each statement and each batch that runs for something
// recorded, without parameters. It is nil when t is.
func (t *Telemetry) SQL() pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return statements{}
}

// statements implements pgx.QueryTracer and pgx.BatchTracer. What Start returned
// is in the context that pgx hands back.
type statements struct{}

func (statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	ctx, s := Start(ctx, "query")
	if s.span != nil {
		s.span.SetAttributes(semconv.DBSystemNamePostgreSQL, semconv.DBQueryText(d.SQL))
	}
	return ctx
}

func (statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	Span{trace.SpanFromContext(ctx)}.End(d.Err)
}

func (statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	ctx, s := Start(ctx, "batch")
	if s.span != nil {
		all := make([]string, len(d.Batch.QueuedQueries))
		for i, q := range d.Batch.QueuedQueries {
			all[i] = q.SQL
		}
		s.span.SetAttributes(semconv.DBSystemNamePostgreSQL, semconv.DBOperationBatchSize(len(all)), semconv.DBQueryText(strings.Join(all, "; ")))
	}
	return ctx
}

func (statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	Span{trace.SpanFromContext(ctx)}.End(d.Err)
}
