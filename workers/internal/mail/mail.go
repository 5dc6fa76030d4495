// Package mail hands messages over to the next mail server, or to a directory.
package mail

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	netmail "net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"

	"standmeet/shared/email"
)

// Message is a mail to one recipient. Whatever its fields hold, nothing in them
// becomes a header, a second recipient or markup: control characters in names
// and the subject are spaces, and Text is shown literally. It goes out as plain
// text with an HTML version of the same words.
type Message struct {
	// TaskID names the work that sends it. The Message-ID is made of it, so that
	// a mail that was handed over twice is known as one.
	TaskID string
	// FromName is whom the mail is from, beside the sender's address; may be empty.
	FromName string
	To       Address
	// ReplyTo may be zero.
	ReplyTo Address
	// Subject is cut after 250 characters.
	Subject string
	// Text is paragraphs with an empty line between two.
	Text string
	// Links are the http and https addresses in Text that its HTML version links.
	// Every other address stays text there, such as those that a visitor wrote.
	Links []string
	// Calendar may be nil.
	Calendar *Calendar
}

// Calendar is what a calendar app does with the mail (iTIP, RFC 6047): it is
// there as an alternative of the text and as the attachment invite.ics.
type Calendar struct {
	// Method is REQUEST, CANCEL …: the METHOD of ICS, which must say the same.
	Method string
	// ICS is one iCalendar object with CRLF line ends.
	ICS []byte
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

// unverified reports that Amazon SES, which says so in these words by HTTP and by
// SMTP, refuses an address that nobody has verified with it: the sender's, or
// anybody's while the account is in the sandbox. That is to be put right there.
func unverified(refusal error) bool {
	return strings.Contains(refusal.Error(), "address is not verified")
}

const (
	maxSubject = 250
	maxName    = 100
	// handOver bounds one hand-over, from the dial to the server's last word: less
	// than the time that an attempt of a mail's task has.
	handOver = 30 * time.Second
)

// compose puts m into MIME.
func compose(from string, m Message) (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithEncoding(gomail.EncodingQP), gomail.WithCharset(gomail.CharsetUTF8), gomail.WithNoDefaultUserAgent())
	for header, a := range map[gomail.AddrHeader]Address{gomail.HeaderFrom: {m.FromName, from}, gomail.HeaderTo: m.To, gomail.HeaderReplyTo: m.ReplyTo} {
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
	text := plain(m.Text)
	msg.SetBodyString(gomail.TypeTextPlain, text)
	msg.AddAlternativeString(gomail.TypeTextHTML, page(text, m.Links))
	if m.Calendar != nil {
		if err := addCalendar(msg, *m.Calendar); err != nil {
			return nil, permanentError{err}
		}
	}
	return msg, nil
}

// addCalendar adds c as calendar apps look for it. Base64 keeps its bytes.
func addCalendar(msg *gomail.Msg, c Calendar) error {
	method := regexp.MustCompile(`(?mi)^METHOD:([A-Z]+)\r?$`).FindSubmatch(c.ICS)
	if method == nil || string(method[1]) != c.Method {
		return fmt.Errorf("mail: the calendar object's METHOD is not %q", c.Method)
	}
	// RFC 6047, 2.4: the type's method is the object's
	msg.AddAlternativeString(gomail.ContentType("text/calendar; method="+c.Method), string(c.ICS), gomail.WithPartEncoding(gomail.EncodingB64))
	if err := msg.AttachReader("invite.ics", bytes.NewReader(c.ICS), gomail.WithFileContentType("application/ics")); err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	return nil
}

// plain is s with LF line ends and without control characters.
func plain(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, s)
}

// page is text, as plain makes it, as a small HTML page.
func page(text string, links []string) string {
	links = slices.SortedFunc(slices.Values(links), func(a, b string) int { return len(b) - len(a) })
	var anchors []string
	for _, l := range links {
		if u, err := url.Parse(l); err == nil && (u.Scheme == "https" || u.Scheme == "http") {
			l = html.EscapeString(l)
			anchors = append(anchors, l, `<a href="`+l+`">`+l+`</a>`)
		}
	}
	linked := strings.NewReplacer(anchors...)
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"></head>\n" +
		"<body style=\"font:16px/1.5 sans-serif;color:#222;max-width:36em;overflow-wrap:anywhere\">\n")
	for p := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		p = linked.Replace(html.EscapeString(strings.Trim(p, "\n")))
		b.WriteString(`<p style="white-space:pre-wrap">` + strings.ReplaceAll(p, "\n", "<br>") + "</p>\n")
	}
	b.WriteString("</body></html>\n")
	return b.String()
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
