// Package secret makes the secrets that people carry: ones derived from a key
// that is not in the database, so that the database holds their hashes alone
// while they can still be shown and mailed again.
package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// MinKey is the smallest key, in bytes.
const MinKey = 32

// Keys are what secrets are derived with: the first makes new ones, the others
// only find those that were made before it. The zero Keys can make none.
type Keys struct{ keys [][]byte }

var errKeys = errors.New("must be a comma list of keys, each at least 32 bytes in base64")

// ParseKeys reads a comma list of keys in base64, standard or URL, padded or
// not. The error never holds a key.
func ParseKeys(s string) (k Keys, err error) {
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimSpace(part)), "=")
		key, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil || len(key) < MinKey {
			return Keys{}, errKeys
		}
		k.keys = append(k.keys, key)
	}
	return k, nil
}

// Zero reports that there is no key.
func (k Keys) Zero() bool { return len(k.keys) == 0 }

// String keeps keys out of logs.
func (k Keys) String() string { return fmt.Sprintf("%d keys", len(k.keys)) }

// GoString is String.
func (k Keys) GoString() string { return k.String() }

// Hash is what is stored of a secret. A plain SHA-256 is enough for one that
// can't be guessed.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Same compares a secret with a stored hash, in the same time for each.
func Same(secret string, hash []byte) bool {
	return subtle.ConstantTimeCompare(Hash(secret), hash) == 1
}

func derive(key []byte, purpose, id string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose))
	mac.Write([]byte{0})
	mac.Write([]byte(id))
	return mac.Sum(nil)
}

// Token derives the token of id: 43 letters of base64url. Purposes keep the
// tokens of different things apart.
func (k Keys) Token(purpose, id string) string {
	return base64.RawURLEncoding.EncodeToString(derive(k.keys[0], purpose, id))
}

// FindToken derives the token of id that hash was stored of; ok is false when
// none of the keys made it.
func (k Keys) FindToken(purpose, id string, hash []byte) (token string, ok bool) {
	for _, key := range k.keys {
		token = base64.RawURLEncoding.EncodeToString(derive(key, purpose, id))
		if Same(token, hash) {
			return token, true
		}
	}
	return "", false
}

// codeLetters is Crockford's base 32: no I, L, O or U.
const codeLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const (
	codeLen   = 16 // 80 bits
	codeGroup = 4
)

func code(key []byte, id string) string {
	raw := derive(key, "code", id)
	var b strings.Builder
	for i := range codeLen {
		if i > 0 && i%codeGroup == 0 {
			b.WriteByte('-')
		}
		b.WriteByte(codeLetters[raw[i]&31])
	}
	return b.String()
}

// Code derives an access code that people can read out and type: 16 letters of
// Crockford's base 32 (80 bits) in groups of four.
func (k Keys) Code(id string) string { return code(k.keys[0], id) }

// FindCode is as FindToken, for codes.
func (k Keys) FindCode(id string, hash []byte) (found string, ok bool) {
	for _, key := range k.keys {
		if found = code(key, id); Same(found, hash) {
			return found, true
		}
	}
	return "", false
}

// CleanCode gives a code as it is stored, of what somebody typed: case, spaces
// and hyphens don't matter, and O, I and L are the digits that they look like
// (Crockford). ok is false for what can't be a code.
func CleanCode(typed string) (clean string, ok bool) {
	if len(typed) > 200 {
		return "", false
	}
	var b strings.Builder
	n := 0
	for _, r := range typed {
		if r >= 'a' && r <= 'z' {
			r -= 'a' - 'A'
		}
		switch r {
		case ' ', '\t', '\n', '\r', '-', '\u00a0', '\u2010', '\u2011', '\u2012', '\u2013', '\u2014', '\u2212':
			continue
		case 'O':
			r = '0'
		case 'I', 'L':
			r = '1'
		}
		if r > 'Z' || !strings.ContainsRune(codeLetters, r) || n == codeLen {
			return "", false
		}
		if n > 0 && n%codeGroup == 0 {
			b.WriteByte('-')
		}
		b.WriteRune(r)
		n++
	}
	return b.String(), n == codeLen
}
