package access

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// Redeemed answers codes.redeem.
type Redeemed struct {
	Session   string    `json:"session,omitempty" jsonschema:"the visitor's session, as a bearer token; a browser gets it as a cookie. Absent only when a repetition meets an installation that has lost the key that made it"`
	ExpiresAt time.Time `json:"expires_at" jsonschema:"when the session or the code ends, whichever is first; the owner may revoke the code before"`
	Handle    string    `json:"handle" jsonschema:"the owner's public name"`
	Owner     string    `json:"owner" jsonschema:"the owner's name; may be empty"`

	sessionEnds time.Time
}

// Cookie is the cookie that holds a visitor's session, for browsers. secure keeps
// it from plain HTTP.
func Cookie(session string, ends time.Time, secure bool) *http.Cookie {
	return &http.Cookie{
		Name: auth.VisitorCookie, Value: session, Path: "/", Expires: ends, MaxAge: int(time.Until(ends).Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure,
	}
}

// MinRedeemKey is the shortest idempotency key that a code is redeemed with, in
// characters: it takes part in the secret of the session, so nobody may guess it.
const MinRedeemKey = 16

// sessionPurpose is what a token of secret.Keys is for that begins a session.
const sessionPurpose = "visitor_session"

// sessionID is what the secret of a session is derived of that a code and a key
// began.
func sessionID(code uuid.UUID, key string) string { return code.String() + " " + key }

// Redeem declares codes.redeem. Its faults are those of [access.Redeem],
// "keys_not_configured" (409) and a key that is too short (400).
//
// With an idempotency key, a session that is begun has a secret derived of the
// code's id, the key and SECRET_KEY. So a repetition gives the same one, from
// another address too, though the database holds its hash alone; and whoever
// lacks one of the three has nothing.
func Redeem(d Deps) *op.Operation {
	type in struct {
		Handle string `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Code   string `json:"code" minLength:"1" maxLength:"200" jsonschema:"the code as it was typed: case, spaces and hyphens don't matter"`
	}
	type redeemed struct {
		Handle      string    `json:"handle"`
		Owner       string    `json:"owner"`
		Code        uuid.UUID `json:"code"`
		Ends        time.Time `json:"ends"`
		SessionEnds time.Time `json:"session_ends"`
		// Hash tells which secret it was.
		Hash []byte `json:"hash"`

		session string
	}
	return op.NewWrite(op.Spec{
		Name: "codes.redeem", Method: "POST", Path: "/v1/public/{handle}/codes/redeem", Access: op.Public,
		Summary: "Redeem an access code",
		Description: "Puts a code into the visitor's session, or into a new one, which then sees what the owner shares by code. A code that is unknown, expired or revoked is code_not_accepted; 30 wrong ones within 10 minutes are taken from one address. " +
			"code_full means that the code is right and used by as many as it allows. Send an Idempotency-Key of at least 16 characters that nobody can guess, such as a random UUID: then a repetition gives the same session and uses up no second place.",
		MaxBody: 16 << 10,
		Failed: func(ctx context.Context, c auth.Caller, err error) error {
			return access.Wrong(ctx, d.DB, c.RemoteAddr, err)
		},
		Headers: []op.Header{{Name: "Set-Cookie", Description: "The visitor's session, for browsers.", Value: func(out any) string {
			r := out.(Redeemed)
			if r.Session == "" {
				return ""
			}
			return Cookie(r.Session, r.sessionEnds, d.HTTPS).String()
		}}},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (redeemed, error) {
		v := access.Visit{Session: c.VisitorSession, Address: c.RemoteAddr}
		if key := op.CallFrom(ctx).IdempotencyKey; key != "" {
			switch {
			case len(key) < MinRedeemKey:
				return redeemed{}, fault.InvalidField("idempotency_key", "too_short", fmt.Sprintf("The idempotency key must have at least %d characters here, and be random: it takes part in the secret of the session.", MinRedeemKey))
			case d.Keys.Zero():
				return redeemed{}, fault.New(fault.Conflict, "keys_not_configured", "No key for secrets is configured (SECRET_KEY), so a code can't be redeemed with an idempotency key. Leave it out.")
			}
			v.Fresh = func(code uuid.UUID) string {
				return auth.VisitorPrefix + d.Keys.Token(sessionPurpose, sessionID(code, key))
			}
		}
		r, err := access.Redeem(ctx, tx, in.Handle, v, in.Code)
		return redeemed{
			Handle: r.Owner.Handle, Owner: r.Owner.Name, Code: r.Code, Ends: r.Ends, SessionEnds: r.SessionEnds,
			Hash: secret.Hash(bare(r.Session)), session: r.Session,
		}, err
	}, func(ctx context.Context, c auth.Caller, r redeemed) (Redeemed, error) {
		if r.session == "" { // a repetition: it was the caller's own, or was begun
			if secret.Same(bare(c.VisitorSession), r.Hash) {
				r.session = c.VisitorSession
			} else if token, ok := d.Keys.FindToken(sessionPurpose, sessionID(r.Code, op.CallFrom(ctx).IdempotencyKey), r.Hash); ok {
				r.session = auth.VisitorPrefix + token
			}
		}
		return Redeemed{Session: r.session, ExpiresAt: r.Ends, Handle: r.Handle, Owner: r.Owner, sessionEnds: r.SessionEnds}, nil
	})
}

// bare is the secret of a session without what all of them begin with.
func bare(session string) string { return strings.TrimPrefix(session, auth.VisitorPrefix) }
