package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
)

// sealKeys are keys of one repeated letter each, in the order of letters.
func sealKeys(t testing.TB, letters string) Keys {
	t.Helper()
	var parts []string
	for _, l := range letters {
		parts = append(parts, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(string(l)), MinKey)))
	}
	k, err := ParseKeys(strings.Join(parts, ","))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealOpens(t *testing.T) {
	t.Parallel()
	k := sealKeys(t, "a")
	for _, plain := range []string{"", "x", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", strings.Repeat("日", 9000)} {
		sealed := k.Seal("webhook", "42", []byte(plain))
		if len(plain) > 8 && bytes.Contains(sealed, []byte(plain)) {
			t.Errorf("%q lies open in what was sealed", plain)
		}
		got, err := k.Open("webhook", "42", sealed)
		if err != nil || string(got) != plain {
			t.Errorf("open: %q, %v; want %q", got, err, plain)
		}
		if again := k.Seal("webhook", "42", []byte(plain)); bytes.Equal(again, sealed) {
			t.Errorf("%q sealed twice gives equal bytes: the nonce isn't fresh", plain)
		}
	}
}

func TestSealKeyRotation(t *testing.T) {
	t.Parallel()
	old := sealKeys(t, "a")
	sealed := old.Seal("webhook", "42", []byte("s"))
	both := sealKeys(t, "ba")
	if got, err := both.Open("webhook", "42", sealed); err != nil || string(got) != "s" {
		t.Errorf("the key that is no longer first: %q, %v", got, err)
	}
	if !old.Current(sealed) || both.Current(sealed) {
		t.Errorf("current: %v by its own key, %v after rotation", old.Current(sealed), both.Current(sealed))
	}
	again := both.Seal("webhook", "42", []byte("s"))
	if !both.Current(again) {
		t.Error("the first key must seal")
	}
	if got, err := sealKeys(t, "b").Open("webhook", "42", again); err != nil || string(got) != "s" {
		t.Errorf("after the old key is gone: %q, %v", got, err)
	}
	if _, err := sealKeys(t, "b").Open("webhook", "42", sealed); !errors.Is(err, ErrNoKey) {
		t.Errorf("a key that is gone: %v", err)
	}
	if _, err := (Keys{}).Open("webhook", "42", sealed); !errors.Is(err, ErrNoKey) {
		t.Errorf("no keys: %v", err)
	}
	if (Keys{}).Current(sealed) {
		t.Error("no keys: nothing is current")
	}
}

func TestSealIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	k := sealKeys(t, "ab")
	sealed := k.Seal("webhook", "42", []byte("s"))
	for _, place := range [][2]string{{"webhook", "43"}, {"webhook", ""}, {"feed", "42"}, {"webhook4", "2"}, {"webhoo", "k42"}, {"", "webhook42"}} {
		if got, err := k.Open(place[0], place[1], sealed); !errors.Is(err, ErrSealed) {
			t.Errorf("%q: %q, %v; want ErrSealed", place, got, err)
		}
	}
}

func TestSealShowsTampering(t *testing.T) {
	t.Parallel()
	k := sealKeys(t, "ab")
	sealed := k.Seal("webhook", "42", []byte("secret"))
	for i := range sealed {
		for bit := range 8 {
			bad := slices.Clone(sealed)
			bad[i] ^= 1 << bit
			if got, err := k.Open("webhook", "42", bad); !errors.Is(err, ErrSealed) && !errors.Is(err, ErrNoKey) {
				t.Errorf("byte %d bit %d changed: %q, %v", i, bit, got, err)
			}
		}
	}
	for n := range sealed {
		if got, err := k.Open("webhook", "42", sealed[:n]); !errors.Is(err, ErrSealed) {
			t.Errorf("cut to %d bytes: %q, %v", n, got, err)
		}
	}
	if got, err := k.Open("webhook", "42", append(slices.Clone(sealed), 0)); !errors.Is(err, ErrSealed) {
		t.Errorf("a byte more: %q, %v", got, err)
	}
}

// TestSealFormat pins what is in the databases: values of this format must open
// for as long as their key is configured.
func TestSealFormat(t *testing.T) {
	t.Parallel()
	const kept = "ASYLmvg2JKcjKH0CsAFBnZVaLVfIn8p4vjv4ILl9eETdk/dwgQ=="
	sealed, err := base64.StdEncoding.DecodeString(kept)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sealKeys(t, "za").Open("webhook", "42", sealed)
	if err != nil || string(got) != "kept" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzOpenSealed(f *testing.F) {
	k := sealKeys(f, "ab")
	f.Add([]byte{})
	f.Add([]byte{sealV1})
	f.Add(append([]byte{sealV1}, keyID(k.keys[0])...))
	f.Add(k.Seal("webhook", "43", []byte("s")))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if got, err := k.Open("webhook", "42", sealed); !errors.Is(err, ErrSealed) && !errors.Is(err, ErrNoKey) || got != nil {
			t.Errorf("%x opens: %q, %v", sealed, got, err)
		}
	})
}

func FuzzSeal(f *testing.F) {
	k := sealKeys(f, "ab")
	f.Add("webhook", "42", []byte("s"))
	f.Fuzz(func(t *testing.T, purpose, id string, plain []byte) {
		got, err := k.Open(purpose, id, k.Seal(purpose, id, plain))
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
