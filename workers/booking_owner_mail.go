package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"standmeet/shared/task"
)

func bookingOwnerMail(p *post) func(context.Context, *river.Job[task.BookingOwnerMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.BookingOwnerMailArgs]) error {
		return errors.New("being built")
	}
}
