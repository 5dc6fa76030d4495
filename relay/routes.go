package relay

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/outbox"
	"standmeet/shared/task"
)

// route turns an event into the arguments of a subscriber's job.
type route struct {
	args func(outbox.Event) (river.JobArgs, error)
	// coalesce lets one job cover all events of a subject that are fanned out
	// together. Only for work that reads its subject when it runs.
	coalesce bool
}

// routes is the only place where a subscriber meets its job. Which subscribers
// an event type has is declared in outbox.Types, because tasks.get must answer
// for a task before any relay has run.
func routes() map[string]route {
	return map[string]route{
		task.CorpusIndex: {coalesce: true, args: func(e outbox.Event) (river.JobArgs, error) {
			note, err := subjectID(e)
			return task.IndexArgs{OwnerID: e.OwnerID, NoteID: note, Trace: e.Trace}, err
		}},
		task.WebhookDeliver:   {coalesce: true, args: deliverArgs},
		task.JobsFetch:        {args: func(e outbox.Event) (river.JobArgs, error) { return task.JobsFetchArgs{Caused: caused(e)}, nil }},
		task.MailTest:         {args: func(e outbox.Event) (river.JobArgs, error) { return task.MailTestArgs{Caused: caused(e)}, nil }},
		task.TasksBulk:        {args: func(e outbox.Event) (river.JobArgs, error) { return task.BulkArgs{Caused: caused(e)}, nil }},
		task.ApprovalMail:     {args: func(e outbox.Event) (river.JobArgs, error) { return task.ApprovalMailArgs{Caused: caused(e)}, nil }},
		task.OwnerNotify:      {args: func(e outbox.Event) (river.JobArgs, error) { return task.OwnerNotifyArgs{Caused: caused(e)}, nil }},
		task.BookingMail:      {args: func(e outbox.Event) (river.JobArgs, error) { return task.BookingMailArgs{Caused: caused(e)}, nil }},
		task.BookingOwnerMail: {args: func(e outbox.Event) (river.JobArgs, error) { return task.BookingOwnerMailArgs{Caused: caused(e)}, nil }},
		task.MicrositeBuild:   {args: func(e outbox.Event) (river.JobArgs, error) { return task.MicrositeBuildArgs{Caused: caused(e)}, nil }},
		task.SignInMail:       {args: func(e outbox.Event) (river.JobArgs, error) { return task.SignInMailArgs{Caused: caused(e)}, nil }},
		task.PeriodicRun: {args: func(e outbox.Event) (river.JobArgs, error) {
			return task.PeriodicArgs{Caused: caused(e), Name: e.Subject}, nil
		}},
	}
}

func subjectID(e outbox.Event) (uuid.UUID, error) {
	id, err := uuid.Parse(e.Subject)
	if err != nil {
		return id, fmt.Errorf("subject of %s is no id: %w", e.Type, err)
	}
	return id, nil
}

func caused(e outbox.Event) task.Caused {
	return task.Caused{EventID: e.ID, OwnerID: e.OwnerID, Subject: e.Subject, Data: e.Data, Trace: e.Trace}
}

// command reads what a command event asks for.
func command(e outbox.Event) (c task.Command, err error) {
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return c, fmt.Errorf("data of %s: %w", e.Type, err)
	}
	return c, nil
}
