// Package tasks holds the owner's operations on work in flight.
package tasks

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// Deps is what these operations need.
type Deps struct {
	DB       *pg.DB
	Receipts *task.Receipts
}

// find resolves what a caller calls a task: its id, the number of the queue job
// that covers it, or the id of a build, which is that of its event.
func find(ctx context.Context, db *pg.DB, owner uuid.UUID, id string) (task.ID, error) {
	if job, err := strconv.ParseInt(id, 10, 64); err == nil {
		return task.ByJob(ctx, db, owner, job)
	}
	if build, err := uuid.Parse(id); err == nil {
		return task.ID{Event: build, Subscriber: task.MicrositeBuild}, nil
	}
	return task.ParseID(id)
}

// Matching is the filter that lists and bulk operations share.
type Matching struct {
	Kind    string     `json:"kind,omitempty" maxLength:"64" jsonschema:"only this kind of task, e.g. corpus.index"`
	State   string     `json:"state,omitempty" enum:"pending,running,retryable,completed,discarded,cancelled" jsonschema:"only tasks in this state"`
	Subject string     `json:"subject,omitempty" maxLength:"200" jsonschema:"only tasks about this id, e.g. a note's"`
	Since   *time.Time `json:"since,omitempty" jsonschema:"only tasks asked for at or after this time (RFC 3339)"`
}

func (m Matching) filter() (task.Filter, error) {
	f := task.Filter{Kind: m.Kind, State: task.State(m.State), Subject: m.Subject}
	if m.Since != nil {
		f.Since = *m.Since
	}
	if _, ok := task.LookupKind(m.Kind); m.Kind != "" && !ok {
		return f, fault.InvalidField("kind", "not_allowed", "There is no such kind of task.")
	}
	return f, nil
}
