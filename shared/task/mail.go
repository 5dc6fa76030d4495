package task

// Mail is where a mail stands, and its receipt.
type Mail struct {
	State string `json:"state" enum:"sending,sent,failed" jsonschema:"sent only once the mail server has taken it"`
	JobID string `json:"job_id" jsonschema:"the receipt: follow it with tasks.get"`
}

// The states of a mail.
const (
	MailSending = "sending"
	MailSent    = "sent"
	MailFailed  = "failed"
)

// MailOf is where the mail of a task in state s stands.
func MailOf(id ID, s State) Mail {
	m := Mail{State: MailSending, JobID: id.String()}
	switch s {
	case Completed:
		m.State = MailSent
	case Discarded, Cancelled:
		m.State = MailFailed
	case Pending, Running, Retryable:
	}
	return m
}
