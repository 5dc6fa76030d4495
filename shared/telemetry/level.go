package telemetry

import (
	"context"
	"log/slog"
)

// AtLeast is log without what is below a level: for libraries that tell of
// every start and stop at Info.
func AtLeast(log *slog.Logger, level slog.Level) *slog.Logger {
	return slog.New(atLeast{log.Handler(), level})
}

type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.Handler.Enabled(ctx, l)
}

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}
