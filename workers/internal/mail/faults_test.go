package mail

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
)

// A repetition after an uncertain end is known as the same mail.
func TestUncertainEnd(t *testing.T) {
	s := serve(t, how{drop: "before"})
	out := sender(t, s, "smtp://HOST")
	for range 2 {
		if err := out.Send(t.Context(), message()); err == nil || Permanent(err) {
			t.Fatalf("the reply was lost: %v", err)
		}
	}
	s.behaves(how{})
	m := message()
	m.Subject = "What it says may have changed meanwhile"
	if err := out.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	mails := s.captured()
	ids := map[string]bool{}
	for _, m := range mails {
		ids[inspect(t, m.raw).header.Get("Message-ID")] = true
	}
	if len(mails) != 3 || len(ids) != 1 {
		t.Errorf("%d mails, ids %v", len(mails), ids)
	}
}

// Once the server has said yes, nothing that follows takes it back.
func TestDroppedAfterTheReply(t *testing.T) {
	s := serve(t, how{drop: "after"})
	if err := sender(t, s, "smtp://HOST").Send(t.Context(), message()); err != nil || len(s.captured()) != 1 {
		t.Errorf("%v, %d mails", err, len(s.captured()))
	}
}

func TestSlowServer(t *testing.T) {
	s := serve(t, how{stall: 300 * time.Millisecond})
	if err := sender(t, s, "smtp://HOST").Send(t.Context(), message()); err != nil || len(s.captured()) != 1 {
		t.Errorf("slow: %v, %d mails", err, len(s.captured()))
	}
	s = serve(t, how{stall: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := sender(t, s, "smtp://HOST").Send(ctx, message()); !errors.Is(err, context.DeadlineExceeded) || Permanent(err) {
		t.Errorf("slower than the time there is: %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, scheme := range []string{"smtp", "smtps"} {
		if err := sender(t, &server{address: l.Addr().String()}, scheme+"://HOST").Send(t.Context(), message()); err == nil || Permanent(err) {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// No mail and no password goes to a server that can't prove its name.
func TestBadCertificate(t *testing.T) {
	for url, h := range map[string]how{
		"smtp://HOST":                    {startTLS: true},
		"smtp://ada:p%40ss%3Aword@HOST":  {startTLS: true, auth: true},
		"smtps://HOST":                   {implicitTLS: true},
		"smtps://ada:p%40ss%3Aword@HOST": {implicitTLS: true, auth: true},
	} {
		s := serve(t, h)
		s.roots = nil // the machine's, which don't know it
		err := sender(t, s, url).Send(t.Context(), message())
		if err == nil || Permanent(err) || !strings.Contains(err.Error(), "certificate") || len(s.captured()) != 0 {
			t.Errorf("%s: %v, %d mails", url, err, len(s.captured()))
		}
	}
}

// A server that refuses at first has the mail once, when it takes it.
func TestRefusedThenTaken(t *testing.T) {
	for _, command := range []string{"EHLO", "MAIL", "RCPT", "DATA"} {
		s := serve(t, how{refuse: map[string]*smtp.SMTPError{command: {Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "try again"}}})
		out := sender(t, s, "smtp://HOST")
		if err := out.Send(t.Context(), message()); err == nil || Permanent(err) || len(s.captured()) != 0 {
			t.Errorf("%s: %v, %d mails", command, err, len(s.captured()))
		}
		s.behaves(how{})
		if err := out.Send(t.Context(), message()); err != nil || len(s.captured()) != 1 {
			t.Errorf("%s: %v, %d mails", command, err, len(s.captured()))
		}
	}
}
