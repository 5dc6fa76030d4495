package microsites

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// Requested answers microsites.build.
type Requested struct {
	Status   microsite.Status `json:"status" enum:"queued" jsonschema:"the request is committed; microsites.get_build tells how it goes"`
	BuildID  uuid.UUID        `json:"build_id"`
	Number   int              `json:"number" jsonschema:"counts the builds of the site"`
	JobID    string           `json:"job_id" jsonschema:"the same for tasks.get"`
	Position int64            `json:"position" jsonschema:"give it to microsites.await_settled as since: this build settles behind it"`
	Sentence string           `json:"sentence"`
}

// Build declares microsites.build. Faults: "no_files", "too_many_builds" (409).
func Build(d Deps) *op.Operation {
	type committed struct {
		microsite.Ref
		Position int64 `json:"position"`
	}
	return op.NewWrite(op.Spec{
		Name: "microsites.build", Method: "POST", Path: "/v1/microsites/{slug}/build", Scope: "microsites:write", Status: 202,
		Summary: "Build a microsite",
		Description: "Asks for a build of a microsite's files as they are now, and answers at once. Follow build_id with microsites.get_build (wait_seconds waits for its end). " +
			"A build that succeeded can be looked at by its preview_url and is live only once microsites.publish says so.",
		Tool: &op.Tool{}, Say: func(o any) string { return o.(Requested).Sentence },
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (made committed, err error) {
		made.Ref, made.Position, err = microsite.Request(ctx, tx, c.OwnerID, in.Slug, outbox.NewID())
		return made, err
	}, func(_ context.Context, _ auth.Caller, made committed) (Requested, error) {
		return Requested{
			Status: made.Status, BuildID: made.BuildID, Number: made.Number, JobID: taskOf(made.BuildID).String(), Position: made.Position,
			Sentence: task.Say(task.MicrositeBuild, task.Pending),
		}, nil
	})
}

// GetBuild declares microsites.get_build.
func GetBuild(d Deps) *op.Operation {
	type in struct {
		BuildID uuid.UUID `json:"build_id" path:"build_id"`
	}
	type out struct {
		microsite.Build
		JobID string       `json:"job_id" jsonschema:"the task that builds it"`
		Wait  *waiter.Wait `json:"wait,omitempty" jsonschema:"present when a wait was asked for"`
	}
	return op.New(op.Spec{
		Name: "microsites.get_build", Method: "GET", Path: "/v1/builds/{build_id}", Scope: "microsites:read",
		Summary: "Read a build of a microsite",
		Description: "Tells where a build stands: queued, building, built or failed, with a log that names file, line and column of each error. " +
			"Give wait_seconds to wait until it is built or failed. built is not live: see microsites.publish.",
		Tool:    &op.Tool{ReadOnly: true, Idempotent: true},
		MaxWait: longWait, WaitIfAsked: true, Timeout: 29 * time.Second,
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		id := taskOf(in.BuildID)
		read := func() error {
			o.Build, err = microsite.GetBuild(ctx, d.DB, c.OwnerID, in.BuildID)
			o.Build, o.JobID = d.shown(o.Build), id.String()
			return err
		}
		if err := read(); err != nil || !op.CallFrom(ctx).WaitAsked {
			return o, err
		}
		budget := op.CallFrom(ctx).Wait
		if o.Status.Settled() {
			o.Wait = &waiter.Wait{AskedMS: budget.Milliseconds(), Ended: waiter.Observed}
			return o, nil
		}
		if call := op.CallFrom(ctx); call.Listening {
			defer task.Watch(ctx, d.DB, []task.ID{id}, call.Progress)()
		}
		_, wait := d.Receipts.Resume(id).Await(ctx, time.Now(), budget)
		o.Wait = &wait
		return o, read()
	})
}

// AwaitSettled declares microsites.await_settled.
func AwaitSettled(d Deps) *op.Operation {
	type in struct {
		Since int64 `json:"since,omitempty" minimum:"0" jsonschema:"the position of an earlier answer, here or of microsites.build; 0 is the beginning"`
		Limit int   `json:"limit,omitempty" minimum:"1" maximum:"50" default:"20"`
	}
	type out struct {
		microsite.Past
		Wait waiter.Wait `json:"wait"`
	}
	return op.New(op.Spec{
		Name: "microsites.await_settled", Method: "GET", Path: "/v1/builds/await-settled", Scope: "microsites:read",
		Summary: "Wait for builds to settle",
		Description: "Answers as soon as builds of yours have settled after since, at once if some have already, and else when wait_seconds are over. " +
			"Each answer gives the position to ask from the next time, so that no build is missed between two requests.",
		Tool:    &op.Tool{ReadOnly: true, Idempotent: true},
		MaxWait: longWait, Timeout: 29 * time.Second,
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		budget := op.CallFrom(ctx).Wait
		began := time.Now()
		// a place before the first look: no signal slips in between
		ticket := d.Waiter.Register(microsite.SettledChannel, microsite.PastKey(c.OwnerID, in.Since))
		if ticket != nil {
			defer ticket.Close()
		}
		read := func() error {
			o.Past, err = microsite.SettledPast(ctx, d.DB, c.OwnerID, in.Since, in.Limit)
			for i := range o.Builds {
				o.Builds[i] = d.shown(o.Builds[i])
			}
			return err
		}
		o.Wait = waiter.Wait{AskedMS: budget.Milliseconds(), Ended: waiter.Observed}
		if err := read(); err != nil || o.Position > in.Since {
			return o, err
		}
		switch {
		case budget <= 0:
			o.Wait.Ended = waiter.NotAsked
			return o, nil
		case ticket == nil:
			o.Wait.Ended = waiter.Capacity
			return o, nil
		}
		ticket.Recheck()
		_, o.Wait.Ended = ticket.Wait(ctx, began.Add(budget))
		o.Wait.WaitedMS = time.Since(began).Milliseconds()
		return o, read()
	})
}
