package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"standmeet/shared/task"
)

func bookingMail(p *post) func(context.Context, *river.Job[task.BookingMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.BookingMailArgs]) error {
		return errors.New("being built")
	}
}
