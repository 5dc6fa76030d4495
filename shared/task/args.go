package task

import (
	"encoding/json"

	"github.com/google/uuid"
)

// IndexArgs asks corpus.index to bring a note's index row up to date. The note
// is read when the job runs, so one job covers every change made before.
type IndexArgs struct {
	OwnerID uuid.UUID `json:"owner_id"`
	NoteID  uuid.UUID `json:"note_id"`
	Trace   string    `json:"trace,omitempty"`
}

// Kind is the River job kind.
func (IndexArgs) Kind() string { return CorpusIndex }

// Caused is what every other kind is given: the event that asked for it.
type Caused struct {
	EventID uuid.UUID       `json:"event_id"`
	OwnerID uuid.UUID       `json:"owner_id"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
	Trace   string          `json:"trace,omitempty"`
}

// Traceparent is the trace that the work continues.
func (c Caused) Traceparent() string { return c.Trace }

// Traceparent is the trace that the work continues.
func (a IndexArgs) Traceparent() string { return a.Trace }

// Origin is whose work it is, and the event that asked for it; zero when there
// is none.
func (c Caused) Origin() (owner, event uuid.UUID) { return c.OwnerID, c.EventID }

// Origin is whose work it is. Of the events that it covers none is told.
func (a IndexArgs) Origin() (owner, event uuid.UUID) { return a.OwnerID, uuid.UUID{} }

// About is the subject of the tasks that the job covers.
func (c Caused) About() string { return c.Subject }

// About is the subject of the tasks that the job covers.
func (a IndexArgs) About() string { return a.NoteID.String() }

// MailTestArgs asks for a test mail; Data is empty.
type MailTestArgs struct{ Caused }

// Kind is the River job kind.
func (MailTestArgs) Kind() string { return MailTest }

// ApprovalMailArgs asks for the mail with an access code; Subject is the request.
type ApprovalMailArgs struct{ Caused }

// Kind is the River job kind.
func (ApprovalMailArgs) Kind() string { return ApprovalMail }

// OwnerNotifyArgs asks for the owner to be told of an access request; Subject is
// the request.
type OwnerNotifyArgs struct{ Caused }

// Kind is the River job kind.
func (OwnerNotifyArgs) Kind() string { return OwnerNotify }

// BookingMailArgs asks for the visitor to be told of what became of a booking;
// Subject is the booking.
type BookingMailArgs struct{ Caused }

// Kind is the River job kind.
func (BookingMailArgs) Kind() string { return BookingMail }

// BookingOwnerMailArgs asks for the owner to be told of what became of a booking;
// Subject is the booking.
type BookingOwnerMailArgs struct{ Caused }

// Kind is the River job kind.
func (BookingOwnerMailArgs) Kind() string { return BookingOwnerMail }

// SignInMailArgs asks for a mail with a sign-in link; Subject is the owner.
type SignInMailArgs struct{ Caused }

// Kind is the River job kind.
func (SignInMailArgs) Kind() string { return SignInMail }

// MicrositeBuildArgs asks for a microsite to be built; Subject is the build.
type MicrositeBuildArgs struct{ Caused }

// Kind is the River job kind.
func (MicrositeBuildArgs) Kind() string { return MicrositeBuild }

// WebhookDeliverArgs asks for what is due at an endpoint to be delivered. The
// deliveries are read when the job runs, so one job covers all that were fanned
// out with it.
type WebhookDeliverArgs struct {
	OwnerID    uuid.UUID `json:"owner_id"`
	EndpointID uuid.UUID `json:"endpoint_id"`
	Trace      string    `json:"trace,omitempty"`
}

// Kind is the River job kind.
func (WebhookDeliverArgs) Kind() string { return WebhookDeliver }

// Traceparent is the trace that the work continues.
func (a WebhookDeliverArgs) Traceparent() string { return a.Trace }

// Origin is whose work it is. Of the events that it covers none is told.
func (a WebhookDeliverArgs) Origin() (owner, event uuid.UUID) { return a.OwnerID, uuid.UUID{} }

// About is the subject of the tasks that the job covers.
func (a WebhookDeliverArgs) About() string { return a.EndpointID.String() }

// JobsFetchArgs asks for a source of job listings to be read; Subject is the
// source.
type JobsFetchArgs struct{ Caused }

// Kind is the River job kind.
func (JobsFetchArgs) Kind() string { return JobsFetch }

// BulkArgs asks for many tasks to be retried or cancelled; Data is a [Bulk].
type BulkArgs struct{ Caused }

// Kind is the River job kind.
func (BulkArgs) Kind() string { return TasksBulk }

// PeriodicArgs asks for a periodic job to run: by its schedule (no event), or
// because the owner asked (Subject is its name too).
type PeriodicArgs struct {
	Caused
	Name string `json:"name"`
}

// Kind is the River job kind.
func (PeriodicArgs) Kind() string { return PeriodicRun }
