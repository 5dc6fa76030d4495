package workers

import (
	"net/url"

	"standmeet/workers/internal/mail"
)

// NewMailer sends through the SMTP server at smtp, or into the directory dir
// when smtp is nil; from is the sender's plain address.
func NewMailer(smtp *url.URL, dir, from string) (Mailer, error) {
	if smtp == nil {
		return mail.Dir{Path: dir, From: from}, nil
	}
	return mail.NewSMTP(smtp, from)
}
