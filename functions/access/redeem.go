package access

import (
	"context"
	"net/http"
	"time"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
)

// Redeemed answers codes.redeem.
type Redeemed struct {
	Session   string    `json:"session" jsonschema:"the visitor's session, as a bearer token; a browser gets it as a cookie"`
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

// Redeem declares codes.redeem. Its faults are those of [access.Redeem].
//
// It takes no idempotency key: the answer holds a secret that is kept nowhere.
// Who repeats it with the session that they have changes nothing.
func Redeem(d Deps) *op.Operation {
	type in struct {
		Handle string `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Code   string `json:"code" minLength:"1" maxLength:"200" jsonschema:"the code as it was typed: case, spaces and hyphens don't matter"`
	}
	return op.New(op.Spec{
		Name: "codes.redeem", Method: "POST", Path: "/v1/public/{handle}/codes/redeem", Access: op.Public,
		Summary: "Redeem an access code",
		Description: "Puts a code into the visitor's session, or into a new one, which then sees what the owner shares by code. A code that is unknown, expired or revoked is code_not_accepted; 30 wrong ones within 10 minutes are taken from one address. " +
			"code_full means that the code is right and used by as many as it allows.",
		MaxBody: 16 << 10,
		Headers: []op.Header{{Name: "Set-Cookie", Description: "The visitor's session, for browsers.", Value: func(out any) string {
			r := out.(Redeemed)
			return Cookie(r.Session, r.sessionEnds, d.HTTPS).String()
		}}},
	}, func(ctx context.Context, c auth.Caller, in in) (Redeemed, error) {
		r, err := access.Redeem(ctx, d.DB, in.Handle, c.VisitorSession, c.RemoteAddr, in.Code)
		return Redeemed{Session: r.Session, ExpiresAt: r.Ends, Handle: r.Owner.Handle, Owner: r.Owner.Name, sessionEnds: r.SessionEnds}, err
	})
}
