// Package task is the truth about work in flight: a row for each (event,
// subscriber), readable from the moment the event commits.
//
// River does the work and the retrying; what a receipt says comes from here.
package task

import (
	"strings"

	"github.com/google/uuid"

	"standmeet/shared/fault"
)

// Final tells waiters which tasks have ended; payload: task ids.
const Final = "standmeet_job_final"

// State is where a task stands. It moves forward only, except when the owner
// retries a task that has ended.
type State string

// The states. The last three are terminal.
const (
	Pending   State = "pending"
	Running   State = "running"
	Retryable State = "retryable" // failed, and will be tried again by itself
	Completed State = "completed"
	Discarded State = "discarded" // failed for good
	Cancelled State = "cancelled"
)

// States lists every state, in the order of a task's life.
func States() []State {
	return []State{Pending, Running, Retryable, Completed, Discarded, Cancelled}
}

// Terminal reports whether the task has ended.
func (s State) Terminal() bool { return s == Completed || s == Discarded || s == Cancelled }

// ID names a task. Its text form is "<event id>:<subscriber>"; it can't be
// guessed, since an event id can't.
type ID struct {
	Event      uuid.UUID
	Subscriber string
}

func (id ID) String() string { return id.Event.String() + ":" + id.Subscriber }

// ParseID reads an ID's text form. Anything else is fault "not_found": ids are
// opaque to callers.
func ParseID(s string) (ID, error) {
	event, subscriber, ok := strings.Cut(s, ":")
	id, err := uuid.Parse(event)
	if !ok || err != nil || len(event) != 36 {
		return ID{}, fault.NotFound("task")
	}
	return ID{Event: id, Subscriber: subscriber}, nil
}
