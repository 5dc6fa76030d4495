package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"standmeet/shared/task"
)

func approvalMail(p *post) func(context.Context, *river.Job[task.ApprovalMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.ApprovalMailArgs]) error {
		return errors.New("being built")
	}
}
