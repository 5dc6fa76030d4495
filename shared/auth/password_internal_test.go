package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"standmeet/shared/fault"
)

func TestCheckPassword(t *testing.T) {
	me := Profile{Handle: "ada-l", Name: "Ada Lovelace", Email: "Ada.Lovelace@example.test"}
	for password, want := range map[string]string{
		"":                          "too_short",
		"elevenchars":               "too_short",
		"éééééééééééé":              "too_common", // twelve letters, one of them
		strings.Repeat("x1", 129):   "too_long",
		"velvet otter ran\xff":      "invalid_text",
		"password1234":              "too_common",
		"Password1234":              "too_common",
		"passwordpassword":          "too_common",
		"qwertyuiop12":              "too_common",
		"123456789012":              "too_common",
		"abcdefghijkl":              "too_common",
		"zyxwvutsrqpo":              "too_common",
		"aaaaaaaaaaaa":              "too_common",
		"abcabcabcabc":              "too_common",
		"letmein!letmein!":          "too_common",
		"iloveyou2024!":             "too_common",
		"correct horse battery":     "",
		"correcthorsebatterystaple": "too_common",
		"Ada.Lovelace@example.test": "too_common",
		"adalovelace1815":           "too_common",
		"ada-lada-lada-l":           "too_common",
		"Passwort1234":              "too_common",
		"ｐａｓｓｗｏｒｄ１２３４":              "too_common",
		"standmeet2026!":            "too_common",
		"velvet otter ran":          "",
		"correct-password-of-mine":  "",
		"my dog is 12 years":        "",
		"四つの言葉で出来た良い合言葉です": "",
		"            otter": "too_common",
	} {
		got := ""
		if f := fault.From(CheckPassword(password, me)); f != nil {
			got = f.Fields[0].Code
			if f.Status() != 400 || f.Fields[0].Name != "password" {
				t.Errorf("%q: %+v", password, f)
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", password, got, want)
		}
	}
}

func TestPHC(t *testing.T) {
	s := &Store{}
	h, err := s.hash(t.Context(), "velvet otter ran")
	if err != nil {
		t.Fatal(err)
	}
	text := h.String()
	if !strings.HasPrefix(text, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Error(text)
	}
	back, err := parsePHC(text)
	if err != nil || back.String() != text {
		t.Errorf("%v, %v", back, err)
	}
	for password, want := range map[string]bool{"velvet otter ran": true, "velvet otter raN": false, "": false} {
		if ok, err := s.matches(t.Context(), password, back); ok != want || err != nil {
			t.Errorf("%q: %v, %v", password, ok, err)
		}
	}
	// what the reference implementation makes: echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1 -l 24
	reference, err := parsePHC("$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.matches(t.Context(), "password", reference); !ok || err != nil {
		t.Errorf("the reference's hash: %v, %v", ok, err)
	}
	for _, bad := range []string{"", "x", "$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAA", "$argon2id$v=16$m=8,t=1,p=1$c29tZXNhbHQ$AAAA", strings.TrimSuffix(text, text[len(text)-30:]), strings.Replace(text, "t=2", "t=0", 1)} {
		if _, err := parsePHC(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if ok, err := s.matches(t.Context(), "", nobody()); ok || err != nil {
		t.Errorf("nobody's: %v, %v", ok, err)
	}
}

// A letter and its accent are one password however a keyboard writes them.
func TestPasswordIsNormalized(t *testing.T) {
	s := &Store{}
	h, err := s.hash(t.Context(), "caf\u00e9 velvet otter")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.matches(t.Context(), "cafe\u0301 velvet otter", h); !ok || err != nil {
		t.Error(ok, err)
	}
}

// However many sign in at once, hashing stays within its memory, and who waits
// for a place gives up with their context.
func TestHashingIsBounded(t *testing.T) {
	s := &Store{hashing: make(chan struct{}, hashers)}
	for range hashers {
		s.hashing <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.hash(ctx, "velvet otter ran"); err == nil {
		t.Error("hashed beyond the bound")
	}
	<-s.hashing
	if _, err := s.hash(t.Context(), "velvet otter ran"); err != nil {
		t.Error(err)
	}
	if len(s.hashing) != hashers-1 {
		t.Errorf("%d places taken", len(s.hashing))
	}
}

func FuzzCheckPassword(f *testing.F) {
	f.Add("password1234", "ada", "Ada L", "ada@example.test")
	f.Add("\xff\x00aaaaaaaaaaaaaaaa", "", "", "")
	f.Add("velvet otter ran", "a-b", "é", "@")
	f.Fuzz(func(_ *testing.T, password, handle, name, email string) {
		_ = CheckPassword(password, Profile{Handle: handle, Name: name, Email: email})
	})
}

func FuzzLogin(f *testing.F) {
	for _, s := range []string{"me", " ME ", "a@b.test", "A@B.Test", "a@b@c", "\x00", "\xff@x", "é@exämple.test", strings.Repeat("a", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		clean, ok := login(typed)
		if !ok {
			return
		}
		if again, ok := login(clean); !ok || again != clean {
			t.Errorf("%q is %q, and that is %q, %v", typed, clean, again, ok)
		}
	})
}

func FuzzPHC(f *testing.F) {
	f.Add("$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parsePHC(s)
		if err != nil {
			return
		}
		if back, err := parsePHC(h.String()); err != nil || back.String() != h.String() {
			t.Errorf("%q: %q, %v", s, h, err)
		}
	})
}
