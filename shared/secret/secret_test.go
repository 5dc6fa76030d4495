package secret_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"standmeet/shared/secret"
)

func key(t testing.TB, letters string) secret.Keys {
	t.Helper()
	var list []string
	for _, r := range letters {
		list = append(list, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(r)}, secret.MinKey)))
	}
	k, err := secret.ParseKeys(strings.Join(list, ","))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	raw := bytes.Repeat([]byte{0xfb, 0xff}, 16)
	want := func() string {
		k, err := secret.ParseKeys(base64.StdEncoding.EncodeToString(raw))
		if err != nil {
			t.Fatal(err)
		}
		return k.Token("p", "x")
	}()
	for _, spelling := range []string{
		base64.RawStdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw), " " + base64.RawURLEncoding.EncodeToString(raw) + "\n",
	} {
		if k, err := secret.ParseKeys(spelling); err != nil || k.Token("p", "x") != want {
			t.Errorf("%q: %v", spelling, err)
		}
	}
	short := base64.StdEncoding.EncodeToString(raw[:31])
	for _, bad := range []string{"", ",", short, base64.StdEncoding.EncodeToString(raw) + ",", base64.StdEncoding.EncodeToString(raw) + "," + short, "not base64, at all: " + strings.Repeat("x", 64)} {
		k, err := secret.ParseKeys(bad)
		if err == nil || !k.Zero() {
			t.Errorf("%q was taken", bad)
		} else if bad != "" && bad != "," && strings.Contains(err.Error(), bad) {
			t.Errorf("the error holds the key: %v", err)
		}
	}
	k := key(t, "ab")
	for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, k, k, k)} {
		if strings.Contains(shown, "97") || strings.Contains(shown, "0x61") || strings.Contains(shown, "aaaa") {
			t.Errorf("printed as %s", shown)
		}
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	before, after, without := key(t, "a"), key(t, "ba"), key(t, "b")
	form := regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){3}$`)
	seen := map[string]bool{}
	for i := range 1000 {
		id := fmt.Sprint(i)
		code := before.Code(id)
		if !form.MatchString(code) || seen[code] || code != before.Code(id) {
			t.Fatalf("the code of %s is %s", id, code)
		}
		seen[code] = true
		hash := secret.Hash(code)
		if found, ok := after.FindCode(id, hash); !ok || found != code {
			t.Errorf("a key behind the first doesn't find %s: %s", code, found)
		}
		if found, ok := without.FindCode(id, hash); ok || found != "" {
			t.Errorf("another key finds %s: %s", code, found)
		}
		if _, ok := before.FindCode(id+"0", hash); ok {
			t.Errorf("another id has the code %s", code)
		}
		if after.Code(id) == code {
			t.Error("the first key makes no new codes")
		}
		if clean, ok := secret.CleanCode(code); !ok || clean != code {
			t.Errorf("%s is cleaned to %s", code, clean)
		}
	}
	if _, ok := (secret.Keys{}).FindCode("1", secret.Hash(before.Code("1"))); ok {
		t.Error("no key finds a code")
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	before, after, without := key(t, "a"), key(t, "ba"), key(t, "b")
	token := before.Token("manage", "1")
	if len(token) != 43 || token != before.Token("manage", "1") {
		t.Errorf("%q", token)
	}
	for _, other := range []string{before.Token("feed", "1"), before.Token("manage", "2"), without.Token("manage", "1"), before.Token("manage\x001", "")} {
		if other == token {
			t.Error("two things have one token")
		}
	}
	hash := secret.Hash(token)
	if found, ok := after.FindToken("manage", "1", hash); !ok || found != token {
		t.Errorf("a key behind the first doesn't find it: %q", found)
	}
	if found, ok := without.FindToken("manage", "1", hash); ok || found != "" {
		t.Errorf("another key finds %q", found)
	}
	if _, ok := before.FindToken("feed", "1", hash); ok {
		t.Error("it is found for another purpose")
	}
	if !secret.Same(token, hash) || secret.Same(token+"x", hash) || secret.Same("", hash) || secret.Same(token, nil) {
		t.Error("Same")
	}
}

func TestCleanCode(t *testing.T) {
	t.Parallel()
	const want = "0123-4567-89AB-1101"
	for _, typed := range []string{
		want, "0123456789ab1101", " 0123 4567\t89ab\n1101 ", "o123-4567-89AB-iLoI", "O123\u20134567\u201489ab\u2011LI0L", "0-1-2-3-4-5-6-7-8-9-a-b-1-1-0-1", "\u00a00123-4567-89AB-1101\r\n",
	} {
		if got, ok := secret.CleanCode(typed); !ok || got != want {
			t.Errorf("%q: %q, %v", typed, got, ok)
		}
	}
	for _, typed := range []string{
		"", "-", "0123-4567-89AB-110", "0123-4567-89AB-1101-1", "0123-4567-89AU-1101", "0123-4567-89AB-110!", "０123-4567-89AB-1101", "0123-4567-89AB-110\x00",
		"0123-4567-89AB-110\u0131", want + strings.Repeat(" ", 200), "\xff123-4567-89AB-1101", "ß123-4567-89AB-1101", "\u017f123-4567-89AB-1101",
	} {
		if got, ok := secret.CleanCode(typed); ok {
			t.Errorf("%q was taken as %q", typed, got)
		}
	}
}

// However it is typed, a code is one of ours in its one form, or none.
func FuzzCleanCode(f *testing.F) {
	for _, seed := range []string{"", "0123-4567-89AB-CDEF", "oO0iIlL1-2345-6789-abcd", "\u20130123", "\x00", "\u0130\u0131\u017f\u212a", strings.Repeat("Z", 16), strings.Repeat("-", 201)} {
		f.Add(seed)
	}
	form := regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){3}$`)
	f.Fuzz(func(t *testing.T, typed string) {
		clean, ok := secret.CleanCode(typed)
		if ok != form.MatchString(clean) {
			t.Fatalf("%q: %q, %v", typed, clean, ok)
		}
		if !ok {
			return
		}
		for _, spelling := range []string{clean, strings.ToLower(clean), strings.ReplaceAll(clean, "-", ""), strings.NewReplacer("0", "o", "1", "l").Replace(clean)} {
			if again, ok := secret.CleanCode(spelling); !ok || again != clean {
				t.Fatalf("%q: %q, and then %q, %v", typed, clean, again, ok)
			}
		}
	})
}
