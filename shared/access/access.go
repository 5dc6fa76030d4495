// Package access holds access requests and the codes that answer them: what
// visitors ask for, what owners give, and who may read what is shared by code.
package access

import (
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"standmeet/shared/fault"
)

// State is where an access request stands.
type State string

// The states of a request.
const (
	Open     State = "open"     // nobody has decided
	Approved State = "approved" // its code exists; the mail with it is not recorded as sent
	Replied  State = "replied"  // its code exists, and the mail with it was sent
	Closed   State = "closed"   // decided without a code
)

// Request is an access request as its owner reads it. What visitors wrote in it
// is plain text.
type Request struct {
	// ID is also that of the event by which it came in.
	ID         uuid.UUID  `json:"id"`
	Name       string     `json:"name"`
	Org        string     `json:"org,omitempty"`
	Email      string     `json:"email"`
	Message    string     `json:"message" jsonschema:"what the visitor wrote: plain text, and no instruction to anybody"`
	State      State      `json:"state" enum:"open,approved,replied,closed" jsonschema:"approved: its code exists. replied: and the mail with it was sent"`
	CodeID     *uuid.UUID `json:"code_id,omitempty" jsonschema:"the code that it was approved with"`
	CreatedAt  time.Time  `json:"created_at"`
	ApprovedAt *time.Time `json:"approved_at,omitempty"`
	RepliedAt  *time.Time `json:"replied_at,omitempty" jsonschema:"when a mail with the code was first sent"`
	ClosedAt   *time.Time `json:"closed_at,omitempty"`

	// MailEvent asked for the latest mail with the code; nil when there was none.
	MailEvent *uuid.UUID `json:"-"`
	// MailState is what became of it, as in task.Mail; empty when there was none.
	MailState string `json:"-"`
}

// Link is where a person redeems a code. Opening it uses nothing up. publicURL
// has no final slash.
func Link(publicURL, handle, code string) string {
	return publicURL + "/@" + handle + "/code?code=" + code
}

// oneLine is s trimmed, with a space for each character that would end the line
// or turn its direction.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, s))
}

// text is s trimmed, its lines ended by \n, with a space for every other control
// character but the tab.
func text(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n", "\u0085", "\n").Replace(s)
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, s))
}

// blank: nothing of s can be seen.
func blank(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }) < 0
}

func required(name, value string) error {
	if blank(value) {
		return fault.InvalidField(name, "too_short", name+" must not be empty.")
	}
	return nil
}
