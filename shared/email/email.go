// Package email decides what an e-mail address is, the same way at the edge
// where one comes in and at the port where mail goes out.
package email

import (
	"errors"
	"net/mail"
	"strings"

	"golang.org/x/net/idna"
)

var errAddress = errors.New("not a plain e-mail address")

// Parse gives the plain address (RFC 5321 Mailbox, without quoting) that s is:
// a domain beyond ASCII in its IDNA form and in lower case. Everything that
// could be read as more than one address is refused: names, angle brackets,
// comments, quotes, lists, control characters.
func Parse(s string) (string, error) {
	at := strings.LastIndexByte(s, '@')
	if at < 1 || at > 64 || strings.ContainsAny(s[:at], "@\"\\") {
		return "", errAddress
	}
	domain, err := idna.Lookup.ToASCII(s[at+1:])
	if err != nil || domain == "" {
		return "", errAddress
	}
	address := s[:at] + "@" + domain
	if len(address) > 254 {
		return "", errAddress
	}
	for _, c := range []byte(address) {
		if c <= ' ' || c > '~' || strings.IndexByte("()<>,;:[]", c) >= 0 {
			return "", errAddress
		}
	}
	parsed, err := mail.ParseAddress(address)
	if err != nil || parsed.Name != "" || parsed.Address != address {
		return "", errAddress
	}
	return address, nil
}
