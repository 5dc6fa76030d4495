package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	gomail "github.com/wneessen/go-mail"
)

// SMTP hands mails over to a submission server.
type SMTP struct {
	from, host string
	port       int
	implicit   bool // TLS from the first byte
	tls        *tls.Config
	options    []gomail.Option
}

// NewSMTP takes smtp://user:password@host:port (port 587 unless given) or
// smtps:// (465); user and password may be missing. smtp uses STARTTLS where it
// is offered, and insists on it before it shows a password to another machine.
// from is the sender's plain address.
func NewSMTP(u *url.URL, from string) (*SMTP, error) {
	s := &SMTP{from: from, host: u.Hostname(), port: 587, implicit: u.Scheme == "smtps"}
	if s.implicit {
		s.port = 465
	}
	if p := u.Port(); p != "" {
		var err error
		if s.port, err = strconv.Atoi(p); err != nil {
			return nil, fmt.Errorf("mail: port %q", p)
		}
	}
	if s.host == "" || u.Scheme != "smtp" && !s.implicit {
		return nil, errors.New("mail: the server's address must be like smtp://host:port or smtps://host:port")
	}
	s.tls = &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12}
	s.options = []gomail.Option{gomail.WithPort(s.port), gomail.WithTimeout(handOver), gomail.WithTLSPolicy(gomail.TLSOpportunistic)}
	if password, _ := u.User.Password(); u.User.Username() != "" {
		s.options = append(s.options, gomail.WithUsername(u.User.Username()), gomail.WithPassword(password))
		switch {
		case s.implicit:
			s.options = append(s.options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover))
		case loopback(s.host):
			s.options = append(s.options, gomail.WithSMTPAuth(gomail.SMTPAuthPlainNoEnc))
		default:
			s.options = append(s.options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithTLSPolicy(gomail.TLSMandatory))
		}
	}
	_, err := gomail.NewClient(s.host, s.options...)
	return s, err
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Send returns nil when the server has accepted the message.
func (s *SMTP) Send(ctx context.Context, m Message) error {
	msg, err := compose(s.from, m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	// go-mail bounds the dial alone; a server that falls silent must not hold us
	var conn net.Conn
	dial := func(dialing context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(dialing, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = c.Close() })
		conn = c
		if s.implicit {
			conn = tls.Client(c, s.tls)
		}
		return conn, nil
	}
	options := append([]gomail.Option{gomail.WithDialContextFunc(dial), gomail.WithTLSConfig(s.tls)}, s.options...)
	client, err := gomail.NewClient(s.host, options...)
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	server, err := client.DialToSMTPClientWithContext(ctx)
	if err == nil {
		err = client.SendWithSMTPClient(server, msg)
		if msg.IsDelivered() {
			// accepted: what goes wrong on the way out changes nothing
			_ = client.CloseWithSMTPClient(server)
			return nil
		}
	}
	if conn != nil {
		_ = conn.Close()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	err = fmt.Errorf("mail: %s: %w", net.JoinHostPort(s.host, strconv.Itoa(s.port)), err)
	if aboutMessage(err) {
		return permanentError{err}
	}
	return err
}

// aboutMessage: the server refused this message for good. A refusal of the
// connection or of our credentials says nothing about the message, and passes
// when somebody puts it right.
func aboutMessage(err error) bool {
	var e *gomail.SendError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Reason {
	case gomail.ErrSMTPMailFrom, gomail.ErrSMTPRcptTo, gomail.ErrSMTPData, gomail.ErrSMTPDataClose:
		switch code := e.ErrorCode(); code {
		case 530, 534, 535, 538: // authentication
			return false
		default:
			return code >= 500 && !unverified(err)
		}
	}
	return false
}
