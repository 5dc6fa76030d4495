package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"standmeet/shared/task"
)

func ownerNotify(p *post) func(context.Context, *river.Job[task.OwnerNotifyArgs]) error {
	return func(ctx context.Context, job *river.Job[task.OwnerNotifyArgs]) error {
		return errors.New("being built")
	}
}
