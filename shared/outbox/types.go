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
	// Exposed types may leave by webhook; the others are internal.
	Exposed bool
	// Facts names the fields of an exposed type's data that a webhook carries
	// beside the subject. No other field ever leaves, so none that is added later
	// does by mistake: name ids and small facts, never texts, addresses or secrets.
	Facts []string
}

// The event types.
const (
	NoteChanged          = "corpus.note.changed"
	TaskRetryRequested   = "task.retry_requested"
	TaskCancelRequested  = "task.cancel_requested"
	TasksBulkRequested   = "tasks.bulk_requested"
	PeriodicRunRequested = "periodic.run_requested"
	MailTestRequested    = "mail.test_requested"
	JobSourceCreated     = "job_source.created"
	JobSourceDeleted     = "job_source.deleted"
	JobsFetchRequested   = "jobs.fetch_requested"
	JobsFetched          = "jobs.fetched"
	TokenCreated         = "token.created"
	TokenRevoked         = "token.revoked"
	SignedIn             = "account.signed_in"
	SignedOut            = "account.signed_out"
	PasswordChanged      = "account.password_changed"
	SignInLinkRequested  = "account.sign_in_link_requested"
	AccessSubmitted      = "access_request.submitted"
	AccessApproved       = "access_request.approved"
	AccessMailRequested  = "access_request.mail_requested"
	AccessClosed         = "access_request.closed"
	CodeCreated          = "code.created"
	CodeRevoked          = "code.revoked"
	CodeRedeemed         = "code.redeemed"
	AvailabilityChanged  = "availability.changed"
	BookingCreated       = "booking.created"
	BookingRescheduled   = "booking.rescheduled"
	BookingCancelled     = "booking.cancelled"
	FeedCreated          = "calendar_feed.created"
	FeedRevoked          = "calendar_feed.revoked"
	WebhookCreated       = "webhook.created"
	WebhookUpdated       = "webhook.updated"
	WebhookDeleted       = "webhook.deleted"
	WebhookDisabled      = "webhook.disabled"
	WebhookSecretRotated = "webhook.secret_rotated"
	DeliveryRequested    = "webhook.delivery_requested"
	VaultImported        = "obsidian.imported"
	BuildRequested       = "microsite.build.requested"
	BuildSettled         = "microsite.build.settled"
	MicrositeChanged     = "microsite.changed"
	MicrositeCreated     = "microsite.created"
	MicrositeDeleted     = "microsite.deleted"
	MicrositePublished   = "microsite.published"
	MicrositeRolledBack  = "microsite.rolled_back"
	MicrositeUnpublished = "microsite.unpublished"
)

// Types lists every declared event type, ordered by name.
func Types() []Type {
	return []Type{
		{Name: AccessApproved, Description: "An access request was approved and its code made.", Subscribers: []string{"access_request.approval_mail"}, Exposed: true, Facts: []string{"code_id"}},
		{Name: AccessClosed, Description: "An access request was closed without a code.", Exposed: true},
		{Name: AccessMailRequested, Description: "The owner asked for the mail with the code of an approved request to be sent again.", Subscribers: []string{"access_request.approval_mail"}, Exposed: true, Facts: []string{"code_id"}},
		{Name: AccessSubmitted, Description: "A visitor asked for access.", Subscribers: []string{"owner.notify"}, Exposed: true, Facts: []string{"name", "org"}},
		{Name: PasswordChanged, Description: "The owner's password was set, changed or removed.", Exposed: true},
		{Name: SignInLinkRequested, Description: "Somebody who gave the address of the owner asked for a sign-in link.", Subscribers: []string{"account.sign_in_mail"}},
		{Name: SignedIn, Description: "The owner signed in.", Exposed: true},
		{Name: SignedOut, Description: "The owner signed out.", Exposed: true},
		{Name: AvailabilityChanged, Description: "The owner changed when they can be booked.", Exposed: true},
		{Name: BookingCancelled, Description: "A booking was cancelled, by the owner or by the visitor.", Subscribers: []string{"booking.mail", "booking.owner_mail"}, Exposed: true, Facts: []string{"starts_at", "ends_at", "time_zone", "state", "sequence", "by"}},
		{Name: BookingCreated, Description: "A visitor booked a time.", Subscribers: []string{"booking.mail", "booking.owner_mail"}, Exposed: true, Facts: []string{"starts_at", "ends_at", "time_zone", "state", "sequence", "by"}},
		{Name: BookingRescheduled, Description: "A booking was moved to another time.", Subscribers: []string{"booking.mail", "booking.owner_mail"}, Exposed: true, Facts: []string{"starts_at", "ends_at", "was_starts_at", "was_ends_at", "time_zone", "state", "sequence", "by"}},
		{Name: FeedCreated, Description: "The address of the calendar feed was made, in place of an earlier one if there was one.", Exposed: true},
		{Name: FeedRevoked, Description: "The address of the calendar feed stopped working.", Exposed: true},
		{Name: CodeCreated, Description: "The owner made an access code without a request.", Exposed: true},
		{Name: CodeRedeemed, Description: "A visitor redeemed an access code.", Exposed: true},
		{Name: CodeRevoked, Description: "An access code was revoked.", Exposed: true},
		{Name: NoteChanged, Description: "A note was created, changed, moved, deleted or restored.", Subscribers: []string{"corpus.index"}, Exposed: true, Facts: []string{"genre", "version", "visibility", "was_visibility", "change"}},
		{Name: JobSourceCreated, Description: "A source of job listings was added.", Exposed: true, Facts: []string{"kind"}},
		{Name: JobSourceDeleted, Description: "A source of job listings was removed; its listings stay.", Exposed: true, Facts: []string{"kind"}},
		{Name: JobsFetchRequested, Description: "The owner asked for a source of job listings to be fetched.", Subscribers: []string{"jobs.fetch"}},
		{Name: JobsFetched, Description: "A source of job listings was read.", Exposed: true, Facts: []string{"seen", "new", "duplicate"}},
		{Name: MailTestRequested, Description: "The owner asked for a test mail.", Subscribers: []string{"mail.test"}},
		{Name: BuildRequested, Description: "The owner asked for a build of a microsite.", Subscribers: []string{"microsite.build"}, Exposed: true, Facts: []string{"site_id", "slug", "number"}},
		{Name: BuildSettled, Description: "A build of a microsite has ended, as built or failed.", Exposed: true, Facts: []string{"site_id", "slug", "number", "status"}},
		{Name: MicrositeChanged, Description: "Files of a microsite were added, replaced or deleted.", Exposed: true, Facts: []string{"slug"}},
		{Name: MicrositeCreated, Description: "A microsite was created.", Exposed: true, Facts: []string{"slug"}},
		{Name: MicrositeDeleted, Description: "A microsite was deleted.", Exposed: true, Facts: []string{"slug"}},
		{Name: MicrositePublished, Description: "A build of a microsite went live.", Exposed: true, Facts: []string{"slug", "build_id", "number"}},
		{Name: MicrositeRolledBack, Description: "A microsite went back to a build that was live before.", Exposed: true, Facts: []string{"slug", "build_id", "number"}},
		{Name: MicrositeUnpublished, Description: "A microsite went offline.", Exposed: true, Facts: []string{"slug"}},
		{Name: VaultImported, Description: "The import of a vault was committed, and changed something.", Exposed: true, Facts: []string{"created", "updated", "unchanged", "deleted", "attachments"}},
		{Name: PeriodicRunRequested, Description: "The owner asked for a periodic job to run now.", Subscribers: []string{"periodic.run"}},
		{Name: TaskCancelRequested, Description: "The owner cancelled a task.", Command: true},
		{Name: TaskRetryRequested, Description: "The owner asked for a task to be tried again.", Command: true},
		{Name: TasksBulkRequested, Description: "The owner retried or cancelled all tasks that match a filter.", Subscribers: []string{"tasks.bulk"}},
		{Name: TokenCreated, Description: "An API token was created.", Exposed: true, Facts: []string{"scopes"}},
		{Name: TokenRevoked, Description: "An API token was revoked.", Exposed: true},
		{Name: WebhookCreated, Description: "A webhook endpoint was created."},
		{Name: WebhookDeleted, Description: "A webhook endpoint was deleted."},
		{Name: DeliveryRequested, Description: "An event is due at a webhook endpoint, because it subscribes to it or because the owner asked.", Subscribers: []string{"webhook.deliver"}},
		{Name: WebhookDisabled, Description: "A webhook endpoint was disabled because deliveries to it kept failing."},
		{Name: WebhookSecretRotated, Description: "The signing secret of a webhook endpoint was replaced."},
		{Name: WebhookUpdated, Description: "A webhook endpoint was changed."},
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
