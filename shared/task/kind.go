package task

import (
	"slices"
	"time"
)

// The task kinds.
const (
	ApprovalMail     = "access_request.approval_mail"
	SignInMail       = "account.sign_in_mail"
	BookingMail      = "booking.mail"
	BookingOwnerMail = "booking.owner_mail"
	CorpusIndex      = "corpus.index"
	JobsFetch        = "jobs.fetch"
	MailTest         = "mail.test"
	MicrositeBuild   = "microsite.build"
	OwnerNotify      = "owner.notify"
	PeriodicRun      = "periodic.run"
	TasksBulk        = "tasks.bulk"
	WebhookDeliver   = "webhook.deliver"
)

// The queues, each with its own worker limit.
const (
	QueueIndex       = "index"
	QueueNotify      = "notify"
	QueueWebhook     = "webhook"
	QueueFetch       = "fetch"
	QueueBuild       = "build"
	QueueMaintenance = "maintenance"
)

// Kind declares a kind of task: a named piece of work that an event asks for.
// Its name is its River job kind.
type Kind struct {
	Name string
	// Title is what a person calls it.
	Title string
	Queue string
	// MaxAttempts is how often it is tried before it is discarded.
	MaxAttempts int
	// Timeout bounds one attempt. It also is how long the job of a killed worker
	// stays lost: it runs again up to 35 s after it. Work that takes longer goes
	// on in slices.
	Timeout time.Duration
	// Transactional kinds do all they do in the transaction that completes the
	// task, so they can be cancelled at any time before. The others say that
	// they are running before they touch the outside world, and from then on a
	// cancel is a request.
	Transactional bool
	// Apart kinds have jobs that cover several tasks which end one by one, also by
	// the hand of another job: the work itself says in a task's row when an attempt
	// begins, how it went and when the next is due. River's counts mean nothing.
	Apart bool
}

// Kinds lists every declared kind, ordered by name.
func Kinds() []Kind {
	// the other end is somebody's mail server
	const mailAttempts, mailTimeout = 8, 40 * time.Second
	return []Kind{
		{Name: ApprovalMail, Title: "Mail an access code", Queue: QueueNotify, MaxAttempts: mailAttempts, Timeout: mailTimeout},
		{Name: SignInMail, Title: "Mail a sign-in link", Queue: QueueNotify, MaxAttempts: mailAttempts, Timeout: mailTimeout},
		{Name: BookingMail, Title: "Mail a visitor about a booking", Queue: QueueNotify, MaxAttempts: mailAttempts, Timeout: mailTimeout},
		{Name: BookingOwnerMail, Title: "Mail the owner about a booking", Queue: QueueNotify, MaxAttempts: mailAttempts, Timeout: mailTimeout},
		{Name: CorpusIndex, Title: "Index a note", Queue: QueueIndex, MaxAttempts: 12, Timeout: 15 * time.Second, Transactional: true},
		{Name: JobsFetch, Title: "Fetch job listings", Queue: QueueFetch, MaxAttempts: 4, Timeout: 60 * time.Second},
		{Name: MailTest, Title: "Send a test mail", Queue: QueueNotify, MaxAttempts: mailAttempts, Timeout: mailTimeout},
		// nobody sees anything of a build before it is settled
		{Name: MicrositeBuild, Title: "Build a microsite", Queue: QueueBuild, MaxAttempts: 6, Timeout: 45 * time.Second, Transactional: true},
		{Name: OwnerNotify, Title: "Mail the owner about an access request", Queue: QueueNotify, MaxAttempts: mailAttempts, Timeout: mailTimeout},
		{Name: PeriodicRun, Title: "Run a periodic job now", Queue: QueueMaintenance, MaxAttempts: 3, Timeout: 20 * time.Second},
		{Name: TasksBulk, Title: "Retry or cancel many tasks", Queue: QueueMaintenance, MaxAttempts: 8, Timeout: 20 * time.Second},
		{Name: WebhookDeliver, Title: "Deliver an event to a webhook endpoint", Queue: QueueWebhook, MaxAttempts: 18, Timeout: 25 * time.Second, Apart: true},
	}
}

// LookupKind finds a declared kind.
func LookupKind(name string) (Kind, bool) {
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

func transactionalKinds() []string {
	var names []string
	for _, k := range Kinds() {
		if k.Transactional {
			names = append(names, k.Name)
		}
	}
	return names
}
