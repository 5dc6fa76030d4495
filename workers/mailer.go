package workers

import (
	"context"
	"errors"

	"standmeet/shared/config"
	"standmeet/workers/internal/mail"
)

// NewMailer hands mails to the supplier that c names, those for a directory to
// dir. Without a supplier it is nil.
func NewMailer(ctx context.Context, c config.Config, dir string) (Mailer, error) {
	switch c.MailSupplier {
	case config.MailSMTP:
		if c.SMTPURL == nil {
			return nil, errors.New("MAIL_SUPPLIER is smtp, and SMTP_URL is not set")
		}
		return mail.NewSMTP(c.SMTPURL, c.MailFrom)
	case config.MailSES:
		o := mail.SESOptions{From: c.MailFrom, Region: c.SESRegion}
		if c.SESEndpoint != nil {
			o.Endpoint = c.SESEndpoint.String()
		}
		return mail.NewSES(ctx, o)
	case config.MailDirectory:
		return mail.Dir{Path: dir, From: c.MailFrom}, nil
	case config.MailNone:
	}
	return nil, nil
}
