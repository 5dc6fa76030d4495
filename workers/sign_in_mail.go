package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"standmeet/shared/task"
)

func signInMail(p *post) func(context.Context, *river.Job[task.SignInMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.SignInMailArgs]) error {
		return errors.New("being built")
	}
}
