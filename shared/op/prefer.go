package op

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxPrefer keeps a huge wait from overflowing a Duration; every MaxWait is far
// below it.
const maxPrefer = 1 << 20

// preferWait reads "wait" from the Prefer headers (RFC 7240, section 4.3): a
// whole number of seconds. The first one counts; one that is malformed is as if
// it weren't there, as the RFC wants.
func preferWait(h http.Header) (time.Duration, bool) {
	for _, header := range h.Values("Prefer") {
		for _, preference := range splitQuoted(header, ',') {
			preference = splitQuoted(preference, ';')[0]
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			value = trimQuotes(strings.TrimSpace(value))
			if value == "" || strings.Trim(value, "0123456789") != "" {
				return 0, false
			}
			n, err := strconv.Atoi(value)
			if err != nil || n > maxPrefer {
				n = maxPrefer
			}
			return time.Duration(n) * time.Second, true
		}
	}
	return 0, false
}

// splitQuoted splits s at sep, except within quoted strings (RFC 9110, section
// 5.6.4).
func splitQuoted(s string, sep byte) []string {
	var parts []string
	quoted, start := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}
