package auth

import (
	"net/http"
	"testing"
)

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		scopes []string
		scope  string
		want   bool
	}{
		{nil, "", true},
		{nil, "corpus:read", false},
		{[]string{"corpus:read"}, "corpus:read", true},
		{[]string{"corpus:write"}, "corpus:read", false},
		{[]string{"corpus:read"}, "corpus", false},
		{[]string{AllScopes}, "anything:write", true},
		{[]string{"corpus:*"}, "corpus:read", false},
	} {
		if got := (Caller{Scopes: c.scopes}).Allows(c.scope); got != c.want {
			t.Errorf("%v allows %q: %v, want %v", c.scopes, c.scope, got, c.want)
		}
	}
}

func TestCredentialsOf(t *testing.T) {
	for name, c := range map[string]struct {
		authorization, cookie string
		want                  Credentials
	}{
		"none":            {"", "", Credentials{}},
		"bearer":          {"Bearer abc", "", Credentials{Bearer: "abc"}},
		"case":            {"bEARER   abc ", "", Credentials{Bearer: "abc"}},
		"session":         {"", "a=1; sm_session=xyz", Credentials{Session: "xyz"}},
		"bearer wins":     {"Bearer abc", "sm_session=xyz", Credentials{Bearer: "abc"}},
		"basic":           {"Basic abc", "", Credentials{}},
		"basic, session":  {"Basic abc", "sm_session=xyz", Credentials{Session: "xyz"}},
		"scheme only":     {"Bearer", "", Credentials{}},
		"scheme, space":   {"Bearer ", "", Credentials{}},
		"another cookie":  {"", "xsm_session=xyz", Credentials{}},
		"bearer as a key": {"Bearerabc", "", Credentials{}},
	} {
		r := &http.Request{Header: http.Header{}}
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		if c.cookie != "" {
			r.Header.Set("Cookie", c.cookie)
		}
		if got := CredentialsOf(r); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestZeroCallerIsAnonymous(t *testing.T) {
	if c := (Caller{}); c.Kind != Anonymous || c.Kind.String() != "anonymous" || c.Allows("corpus:read") {
		t.Errorf("%+v", c)
	}
}
