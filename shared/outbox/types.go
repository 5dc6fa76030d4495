package outbox

import "slices"

// Type declares an event type. An undeclared type can't be recorded.
type Type struct {
	Name string
	// Description says when it happens, in one sentence.
	Description string
	// Subscribers are the task kinds that it asks for. The relay makes one task
	// for each; the read side of tasks knows from here that they will come.
	Subscribers []string
	// Command marks what the relay itself carries out on tasks that exist
	// already; it has no subscribers.
	Command bool
}

// The event types.
const (
	NoteChanged          = "corpus.note.changed"
	TaskRetryRequested   = "task.retry_requested"
	TaskCancelRequested  = "task.cancel_requested"
	TasksBulkRequested   = "tasks.bulk_requested"
	PeriodicRunRequested = "periodic.run_requested"
	MailTestRequested    = "mail.test_requested"
	TokenCreated         = "token.created"
	TokenRevoked         = "token.revoked"
	SignedIn             = "account.signed_in"
	SignedOut            = "account.signed_out"
)

// Types lists every declared event type, ordered by name.
func Types() []Type {
	return []Type{
		{Name: SignedIn, Description: "The owner signed in."},
		{Name: SignedOut, Description: "The owner signed out."},
		{Name: NoteChanged, Description: "A note was created, changed, moved, deleted or restored.", Subscribers: []string{"corpus.index"}},
		{Name: MailTestRequested, Description: "The owner asked for a test mail.", Subscribers: []string{"mail.test"}},
		{Name: PeriodicRunRequested, Description: "The owner asked for a periodic job to run now.", Subscribers: []string{"periodic.run"}},
		{Name: TaskCancelRequested, Description: "The owner cancelled a task.", Command: true},
		{Name: TaskRetryRequested, Description: "The owner asked for a task to be tried again.", Command: true},
		{Name: TasksBulkRequested, Description: "The owner retried or cancelled all tasks that match a filter.", Subscribers: []string{"tasks.bulk"}},
		{Name: TokenCreated, Description: "An API token was created."},
		{Name: TokenRevoked, Description: "An API token was revoked."},
	}
}

// Lookup finds a declared type.
func Lookup(name string) (Type, bool) {
	types := Types()
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return types[i], true
}

// Routes lists (type, subscriber) pairs, for queries that answer for events
// that are not fanned out yet.
func Routes() (types, subscribers []string) {
	for _, t := range Types() {
		for _, s := range t.Subscribers {
			types, subscribers = append(types, t.Name), append(subscribers, s)
		}
	}
	return types, subscribers
}
