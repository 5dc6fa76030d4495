// Package mail hands messages over to the next mail server, or to a directory.
package mail

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	netmail "net/mail"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"

	"standmeet/shared/email"
)

// Message is a mail to one recipient. Whatever its fields hold, nothing in them
// becomes a header, a second recipient or markup: control characters in names
// and the subject are spaces, and the text is plain.
type Message struct {
	// TaskID names the work that sends it. The Message-ID is made of it, so that
	// a mail that was handed over twice is known as one.
	TaskID string
	To     Address
	// ReplyTo may be zero.
	ReplyTo Address
	// Subject is cut after 250 characters.
	Subject string
	Text    string
}

// Address is a person's. Email must be as [email.Parse] wants it; Name may be
// empty, and is cut after 100 characters.
type Address struct{ Name, Email string }

// Sender takes responsibility for a message when Send returns nil. Until then a
// repetition may send it twice, under the same Message-ID. Use [Permanent] on
// the error. It is safe for concurrent use.
type Sender interface {
	Send(ctx context.Context, m Message) error
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent reports that err is about the message itself: its address is none,
// or the server refused it for good (5xx). Every other error may pass.
func Permanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

const (
	maxSubject = 250
	maxName    = 100
)

// compose puts m into MIME.
func compose(from string, m Message) (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithEncoding(gomail.EncodingQP), gomail.WithCharset(gomail.CharsetUTF8), gomail.WithNoDefaultUserAgent())
	for header, a := range map[gomail.AddrHeader]Address{gomail.HeaderFrom: {Email: from}, gomail.HeaderTo: m.To, gomail.HeaderReplyTo: m.ReplyTo} {
		if header == gomail.HeaderReplyTo && a == (Address{}) {
			continue
		}
		address, err := email.Parse(a.Email)
		if err != nil {
			return nil, permanentError{fmt.Errorf("%s: %q is %w", header, a.Email, err)}
		}
		msg.SetAddrHeaderFromMailAddress(header, &netmail.Address{Name: line(a.Name, maxName), Address: address})
	}
	_, domain, _ := strings.Cut(from, "@")
	msg.SetMessageIDWithValue(fileName(m.TaskID) + "@" + domain)
	msg.SetDate()
	msg.SetGenHeaderPreformatted(gomail.HeaderSubject, encodeSubject(line(m.Subject, maxSubject)))
	// RFC 3834: no vacation notice answers it
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetBodyString(gomail.TypeTextPlain, strings.ToValidUTF8(m.Text, "\uFFFD"))
	return msg, nil
}

// line makes one line of s, of at most n characters.
func line(s string, n int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
	if utf8.RuneCountInString(s) > n {
		s = string([]rune(s)[:n-1]) + "…"
	}
	return s
}

// encodeSubject writes s as encoded-words (RFC 2047) unless it is short ASCII
// that can't be taken for one. Folding by words, as go-mail does, loses spaces
// where two meet.
func encodeSubject(s string) string {
	const (
		short = 66 // "Subject: " and this are within 76
		chunk = 39 // bytes that make an encoded-word of 64
	)
	if len(s) <= short && !strings.Contains(s, "=?") && strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return s
	}
	var words []string
	for s != "" {
		n := min(chunk, len(s))
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n--
		}
		words = append(words, "=?utf-8?B?"+base64.StdEncoding.EncodeToString([]byte(s[:n]))+"?=")
		s = s[n:]
	}
	return strings.Join(words, "\r\n ")
}

// fileName is a task id in letters that both a Message-ID and a file name take.
func fileName(taskID string) string {
	return strings.Trim(regexp.MustCompile(`[^A-Za-z0-9-]+`).ReplaceAllString(taskID, "."), ".")
}
