package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	gomail "github.com/wneessen/go-mail"

	"standmeet/shared/email"
)

// SES hands mails over to Amazon SES. SES puts a Message-ID of its own in place
// of ours, so its mails name ours in References: a mail that was handed over
// twice arrives as two in one thread, and in the thread of the same mail by SMTP.
type SES struct {
	from   string
	client *sesv2.Client
}

// SESOptions say where SES is.
type SESOptions struct {
	// From is the sender's plain address, which SES must know as verified.
	From string
	// Region and Credentials: if empty, what the AWS SDK finds, in a Lambda function
	// the function's own.
	Region      string
	Credentials aws.CredentialsProvider
	// Endpoint is a URL; if empty, the region's.
	Endpoint string
}

// NewSES connects to nothing yet.
func NewSES(ctx context.Context, o SESOptions) (*SES, error) {
	c, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(o.Region), config.WithCredentialsProvider(o.Credentials), config.WithBaseEndpoint(o.Endpoint),
		// River tries again, and nobody else
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }))
	if err != nil {
		return nil, fmt.Errorf("mail: SES: %w", err)
	}
	if c.Region == "" {
		return nil, errors.New("mail: SES: no region is configured (SES_REGION or AWS_REGION)")
	}
	return &SES{o.From, sesv2.NewFromConfig(c)}, nil
}

// Send returns nil when SES has accepted the message.
func (s *SES) Send(ctx context.Context, m Message) error {
	msg, err := compose(s.from, m)
	if err != nil {
		return err
	}
	msg.SetGenHeader(gomail.HeaderReferences, msg.GetMessageID())
	var raw bytes.Buffer
	if _, err := msg.WriteTo(&raw); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	to, err := email.Parse(m.To.Email)
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	accepted, err := s.client.SendEmail(ctx, &sesv2.SendEmailInput{
		FromEmailAddress: &s.from,
		// the envelope is this, whatever the header says
		Destination: &types.Destination{ToAddresses: []string{to}},
		Content:     &types.EmailContent{Raw: &types.RawMessage{Data: raw.Bytes()}},
	})
	if err == nil && aws.ToString(accepted.MessageId) == "" {
		err = errors.New("SES answered without the message's id")
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	err = fmt.Errorf("mail: %w", err)
	var rejected *types.MessageRejected
	var bad *types.BadRequestException
	if errors.As(err, &rejected) && !unverified(err) || errors.As(err, &bad) {
		return permanentError{err}
	}
	// a limit, a paused account, a domain that is not set up, a refused key, SES in
	// trouble: it passes, by itself or when somebody puts it right
	return err
}
