// Package auth says who calls.
package auth

import (
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Kind is what a caller is known as. The zero Kind is Anonymous.
type Kind int

const (
	// Anonymous carried no credentials.
	Anonymous Kind = iota
	// Visitor redeemed an access code of an owner.
	Visitor
	// Owner signed in, or holds a token of their own.
	Owner
)

// String is the word that logs use.
func (k Kind) String() string {
	switch k {
	case Visitor:
		return "visitor"
	case Owner:
		return "owner"
	}
	return "anonymous"
}

// AllScopes is the scope that holds every other.
const AllScopes = "*"

// Caller is who asked for an operation. The zero Caller is anonymous.
type Caller struct {
	Kind Kind
	// OwnerID is the owner whose data the caller may reach; zero for Anonymous.
	OwnerID uuid.UUID
	// Handle is the owner's public name.
	Handle string
	// TokenID is the bearer token that was used; zero for a session.
	TokenID uuid.UUID
	// Scopes are "<family>:read", "<family>:write" or AllScopes.
	Scopes []string
	// Grants are the codes that a visitor redeemed and that still hold. An owner
	// may hold some too, of other owners.
	Grants []Grant
	// Ended are the owners whose codes in the same session hold no more.
	Ended []uuid.UUID
	// VisitorSession is the secret of the session that holds them.
	VisitorSession string
	// Session is the secret of the session that an owner signed in with; empty for
	// a token.
	Session string
	// RemoteAddr is the caller's IP address without a port, as the gateway saw it.
	RemoteAddr string
}

// Allows reports whether the caller holds scope. The empty scope is held by
// everyone; "x:write" does not include "x:read".
func (c Caller) Allows(scope string) bool {
	return scope == "" || slices.Contains(c.Scopes, scope) || slices.Contains(c.Scopes, AllScopes)
}

// Grant is an access code that was redeemed.
type Grant struct{ OwnerID, CodeID uuid.UUID }

// Reads reports whether the caller may see what owner shares by code: the owner,
// and visitors who redeemed a code.
func (c Caller) Reads(owner uuid.UUID) bool {
	_, granted := c.Code(owner)
	return granted || c.Kind == Owner && c.OwnerID == owner
}

// Code is a code of owner's that the caller redeemed.
func (c Caller) Code(owner uuid.UUID) (code uuid.UUID, ok bool) {
	i := slices.IndexFunc(c.Grants, func(g Grant) bool { return g.OwnerID == owner })
	if i < 0 {
		return uuid.UUID{}, false
	}
	return c.Grants[i].CodeID, true
}

// Credentials are what a request carried. The zero value is none.
type Credentials struct {
	// Bearer is the token of the Authorization header (RFC 6750).
	Bearer string
	// Session is the value of the session cookie.
	Session string
	// Visitor is the value of the visitor cookie.
	Visitor string
}

// The cookies that hold an owner's session and a visitor's.
const (
	SessionCookie = "sm_session"
	VisitorCookie = "sm_visitor"
)

// CredentialsOf reads what a request carries. A bearer token wins over a
// session, so that a request never acts for two owners. An Authorization header
// of another scheme is no credential.
func CredentialsOf(r *http.Request) Credentials {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		if token = strings.TrimSpace(token); token != "" {
			return Credentials{Bearer: token}
		}
	}
	var found Credentials
	if c, err := r.Cookie(SessionCookie); err == nil {
		found.Session = c.Value
	}
	if c, err := r.Cookie(VisitorCookie); err == nil {
		found.Visitor = c.Value
	}
	return found
}
