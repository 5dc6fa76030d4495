package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"standmeet/shared/email"
	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// How long a password may be, in code points. There are no other rules about
// what it is made of (NIST SP 800-63B, section 3.1.1.2), except that it is not
// easily guessed.
const (
	PasswordMin = 12
	PasswordMax = 256
)

// FreshLink is how long a session that a link began may change the password
// without knowing it: who lost it can mail themselves a link.
const FreshLink = 30 * time.Minute

// hashers is how many passwords a process hashes at a time at most: each takes
// cost.memory KiB, and a Lambda function has 256 MiB.
const hashers = 2

// cost is that of argon2id.
type cost struct {
	memory  uint32 // KiB
	time    uint32
	threads uint8
}

// today is what passwords are hashed with now, the first choice of OWASP's
// password storage cheat sheet for little memory. One that was hashed with
// another cost is hashed again when its owner signs in.
func today() cost { return cost{memory: 19 << 10, time: 2, threads: 1} }

const saltBytes, keyBytes = 16, 32

// phc is a hash as the PHC string format has it.
type phc struct {
	cost
	salt, key []byte
}

func (h phc) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.time, h.threads, b64.EncodeToString(h.salt), b64.EncodeToString(h.key))
}

var errPHC = errors.New("auth: a stored password is no argon2id hash")

func parsePHC(s string) (h phc, err error) {
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, errPHC
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.time, &h.threads); err != nil || h.time == 0 || h.threads == 0 {
		return h, errPHC
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(parts[4])
	key, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(salt) == 0 || len(key) < 16 {
		return h, errPHC
	}
	h.salt, h.key = salt, key
	return h, nil
}

// nobody is what is compared with when there is no password: as much work, and
// never a match.
func nobody() phc {
	return phc{cost: today(), salt: make([]byte, saltBytes), key: nil}
}

// derive hashes a password once one of the process's places is free.
func (s *Store) derive(ctx context.Context, password string, c cost, salt []byte, n int) ([]byte, error) {
	s.mu.Lock()
	if s.hashing == nil {
		s.hashing = make(chan struct{}, hashers)
	}
	places := s.hashing
	s.mu.Unlock()
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-places }()
	// two keyboards may write one letter as different code points
	return argon2.IDKey(norm.NFKC.Bytes([]byte(password)), salt, c.time, c.memory, c.threads, uint32(n)), nil
}

func (s *Store) hash(ctx context.Context, password string) (phc, error) {
	h := phc{cost: today(), salt: make([]byte, saltBytes)}
	_, _ = rand.Read(h.salt) // never fails
	var err error
	h.key, err = s.derive(ctx, password, h.cost, h.salt, keyBytes)
	return h, err
}

// matches compares in the same time whatever the password, also when h is
// nobody's.
func (s *Store) matches(ctx context.Context, password string, h phc) (bool, error) {
	key, err := s.derive(ctx, password, h.cost, h.salt, max(len(h.key), keyBytes))
	return err == nil && subtle.ConstantTimeCompare(key, h.key) == 1, err
}

// CheckPassword refuses a password that an owner may not have: an Invalid fault
// about the field "password", too_short, too_long or too_common.
func CheckPassword(password string, owner Profile) error {
	refuse := func(code, detail string) error { return fault.InvalidField("password", code, detail) }
	switch n := utf8.RuneCountInString(password); {
	case n < PasswordMin:
		return refuse("too_short", fmt.Sprintf("A password needs at least %d characters. Four words that don't belong together make a good one.", PasswordMin))
	case n > PasswordMax:
		return refuse("too_long", fmt.Sprintf("A password may have %d characters at most.", PasswordMax))
	case !utf8.ValidString(password):
		return refuse("invalid_text", "The password is not valid UTF-8.")
	case guessable(password, owner):
		return refuse("too_common", "This password is too easily guessed: it is one of the most common ones, or made of your own name or address, or of few characters that repeat.")
	}
	return nil
}

// common are what the most common passwords of at least PasswordMin characters
// are made of; longer ones come before what they contain.
func common() []string {
	return []string{
		"correcthorsebatterystaple", "administrator", "qwertyuiop", "1qaz2wsx", "1q2w3e4r", "q1w2e3r4", "zaq12wsx", "asdfghjkl", "zxcvbnm",
		"password", "passw0rd", "passwort", "standmeet", "iloveyou", "changeme", "baseball", "football", "princess", "sunshine", "superman",
		"trustno1", "letmein", "welcome", "default", "charlie", "michael", "qwerty", "azerty", "qwertz", "asdfgh", "dragon", "monkey", "master", "shadow", "secret", "abc123", "admin", "login", "hello", "test",
	}
}

// guessable reports whether too little of a password is left once common words,
// runs such as 1234 and what everybody knows of the owner are taken out.
func guessable(password string, owner Profile) bool {
	const enough = 6
	left := strings.ToLower(norm.NFKC.String(password))
	if i := strings.Index((left + left)[1:], left) + 1; i < len(left) {
		left = left[:i] // it repeats
	}
	local, domain, _ := strings.Cut(strings.ToLower(owner.Email), "@")
	words := slices.Concat([]string{strings.ToLower(owner.Email), owner.Handle, local, domain}, strings.Fields(strings.ToLower(owner.Name)), common())
	for _, w := range words {
		if len(w) >= 3 {
			left = strings.ReplaceAll(left, w, "")
		}
	}
	left = withoutRuns(left)
	distinct := map[rune]bool{}
	for _, r := range left {
		distinct[r] = true
	}
	return utf8.RuneCountInString(left) < enough || len(distinct) < 4
}

// withoutRuns leaves out every run of four or more characters that are equal or
// follow each other, up or down.
func withoutRuns(s string) string {
	var out []rune
	in := []rune(s)
	for i := 0; i < len(in); {
		end := i + 1
		if end < len(in) {
			step := in[end] - in[i]
			for step >= -1 && step <= 1 && end < len(in) && in[end]-in[end-1] == step {
				end++
			}
		}
		if end-i < 4 {
			out = append(out, in[i])
			i++
			continue
		}
		i = end
	}
	return string(out)
}

// PasswordChange is what an owner asks for.
type PasswordChange struct {
	// Password is the new one; empty removes it.
	Password string
	// Current is the one that holds; empty where there is none, or for a session
	// that a link began within FreshLink.
	Current string
	// Session is the secret of the session that asks, which goes on; may be empty.
	Session string
}

func wrongCurrent() limit.Rule {
	return limit.Rule{Name: "password_change", Most: 10, Per: 15 * time.Minute, Detail: "The current password was wrong too often."}
}

// SetPassword changes, sets or removes an owner's password in a transaction of
// its own, in which record is called. All other sessions of the owner end with
// it, and all links that were not used yet.
//
// Faults: those of CheckPassword; "current_password_missing" and
// "current_password_wrong" (403), which count towards "rate_limited" (429).
func (s *Store) SetPassword(ctx context.Context, owner uuid.UUID, change PasswordChange, record func(tx *pg.Tx) error) error {
	profile, err := GetOwner(ctx, s.DB, owner)
	if err != nil {
		return err
	}
	var next *string
	if change.Password != "" {
		if err := CheckPassword(change.Password, profile); err != nil {
			return err
		}
	}
	asking, _ := hashSecret(change.Session, "")
	var stored *string
	var fresh bool
	err = s.DB.QueryRow(ctx, `
		SELECT o.password_hash, EXISTS (
			SELECT FROM sessions s WHERE s.id_hash = $2 AND s.owner_id = o.id AND s.by_link AND s.created_at > now() - $3::interval)
		FROM owners o WHERE o.id = $1`, owner, asking, FreshLink).Scan(&stored, &fresh)
	if err != nil {
		return pg.Fault(err)
	}
	if stored != nil && !fresh {
		if err := s.proves(ctx, owner, change.Current, *stored); err != nil {
			return err
		}
	}
	if change.Password != "" {
		h, err := s.hash(ctx, change.Password)
		if err != nil {
			return err
		}
		text := h.String()
		next = &text
	}
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		// what was proved above must still hold
		tag, err := tx.Exec(ctx, `UPDATE owners SET password_hash = $2 WHERE id = $1 AND password_hash IS NOT DISTINCT FROM $3`, owner, next, stored)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return fault.New(fault.Conflict, "password_changed", "The password was changed a moment ago, by another request.")
		}
		if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE owner_id = $1 AND id_hash IS DISTINCT FROM $2`, owner, asking); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE sign_in_links SET used_at = now() WHERE owner_id = $1 AND used_at IS NULL`, owner); err != nil {
			return err
		}
		return record(tx)
	})
}

func (s *Store) proves(ctx context.Context, owner uuid.UUID, current, stored string) error {
	if current == "" {
		return &fault.Fault{Kind: fault.Forbidden, Code: "current_password_missing",
			Detail: "Give the current password too. If it is lost, sign in by a link first: then it isn't asked for within half an hour."}
	}
	h, err := parsePHC(stored)
	if err != nil {
		return err
	}
	if err := wrongCurrent().Take(ctx, s.DB, owner.String()); err != nil {
		return err
	}
	if ok, err := s.matches(ctx, current, h); err != nil || !ok {
		if err == nil {
			err = fault.New(fault.Forbidden, "current_password_wrong", "The current password is not the one given.")
		}
		return err
	}
	_ = wrongCurrent().GiveBack(ctx, s.DB, owner.String()) // else it comes back with time
	return nil
}

const linkStillWorks = "A sign-in link still works."

// The limits of wrong passwords. The login is what was typed and not whom it
// belongs to: else the limit of an address would tell which public name it has.
func wrongFrom() limit.Rule {
	return limit.Rule{Name: "sign_in_from", Most: 30, Per: 15 * time.Minute, Detail: "Too many sign-ins from this address failed. " + linkStillWorks}
}

func wrongLogin() limit.Rule {
	return limit.Rule{Name: "sign_in_login", Most: 10, Per: 15 * time.Minute, Detail: "Too many sign-ins under this name failed. " + linkStillWorks}
}

// login is what somebody typed to say who they are: a handle, or an address,
// which is compared without case. ok is false for what can be neither.
func login(typed string) (clean string, ok bool) {
	clean = strings.ToLower(strings.TrimSpace(typed))
	if strings.Contains(clean, "@") {
		address, err := email.Parse(clean)
		return address, err == nil
	}
	return clean, clean != "" && len(clean) <= 63 && utf8.ValidString(clean) && !strings.ContainsRune(clean, 0)
}

// FindLogin finds the owner whom a login names, by handle or address. An address
// of several owners is the oldest one's: the others have their handle. found is
// false for nobody.
func FindLogin(ctx context.Context, q pg.Querier, typed string) (owner uuid.UUID, found bool, err error) {
	owner, _, found, err = findLogin(ctx, q, typed)
	return owner, found, err
}

func findLogin(ctx context.Context, q pg.Querier, typed string) (owner uuid.UUID, password *string, found bool, err error) {
	name, ok := login(typed)
	if !ok {
		return owner, nil, false, nil
	}
	err = q.QueryRow(ctx, `
		SELECT id, password_hash FROM owners WHERE handle = $1 OR lower(email) = $1 ORDER BY handle = $1 DESC, created_at, id LIMIT 1`, name).
		Scan(&owner, &password)
	if pg.IsNoRows(err) {
		return owner, nil, false, nil
	}
	return owner, password, err == nil, pg.Fault(err)
}

// SignInByPassword begins a session for the owner whom login names, from the IP
// address from. record is called in the transaction that begins it.
//
// An unknown login, a wrong password and an owner without one are all fault
// "sign_in_refused" (401), after the same work. 10 of those for a login, or 30
// from an address, within 15 minutes are "rate_limited" (429), also for the right
// password.
func (s *Store) SignInByPassword(ctx context.Context, typed, password, from string, record func(tx *pg.Tx, owner uuid.UUID) error) (session string, err error) {
	refused := fault.New(fault.Unauthorized, "sign_in_refused", "This name and password don't belong together, or the owner has no password. "+linkStillWorks)
	name, ok := login(typed)
	if !ok {
		name = typed
	}
	// people mistake one field for the other: what they typed is not kept
	from, name = limit.Address(from), hex.EncodeToString(secret.Hash(name))
	if err := wrongFrom().Take(ctx, s.DB, from); err != nil {
		return "", err
	}
	if err := wrongLogin().Take(ctx, s.DB, name); err != nil {
		return "", err
	}
	owner, stored, _, err := findLogin(ctx, s.DB, typed)
	if err != nil {
		return "", err
	}
	h := nobody()
	if stored != nil {
		if h, err = parsePHC(*stored); err != nil {
			return "", err
		}
	}
	if utf8.RuneCountInString(password) > PasswordMax {
		h = nobody() // no password is that long
	}
	right, err := s.matches(ctx, password, h)
	if err != nil {
		return "", err
	}
	if !right {
		return "", refused
	}
	keep := *stored
	if h.cost != today() {
		better, err := s.hash(ctx, password)
		if err != nil {
			return "", err
		}
		keep = better.String()
	}
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		// a password that was changed meanwhile begins no session
		var now *string
		if err := tx.QueryRow(ctx, `SELECT password_hash FROM owners WHERE id = $1 FOR NO KEY UPDATE`, owner).Scan(&now); err != nil {
			return err
		}
		if now == nil || *now != *stored {
			return refused
		}
		if keep != *stored {
			if _, err := tx.Exec(ctx, `UPDATE owners SET password_hash = $2 WHERE id = $1`, owner, keep); err != nil {
				return err
			}
		}
		if session, err = begin(ctx, tx, owner, false); err != nil {
			return err
		}
		return record(tx, owner)
	})
	if err != nil {
		return "", err
	}
	// the session is there; what can't be given back comes back with time
	_ = wrongFrom().GiveBack(ctx, s.DB, from)
	_ = wrongLogin().GiveBack(ctx, s.DB, name)
	return session, nil
}
