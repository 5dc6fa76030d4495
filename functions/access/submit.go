package access

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// Submit declares access_requests.submit. Its answer says that the request is
// saved and nothing of what follows. Fault "website_filled" (422) for what fills
// in the field that people don't see.
func Submit(d Deps) *op.Operation {
	type in struct {
		Handle  string `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Name    string `json:"name" minLength:"1" maxLength:"200" jsonschema:"who asks"`
		Org     string `json:"org,omitempty" maxLength:"200" jsonschema:"where they are from"`
		Email   string `json:"email" minLength:"1" maxLength:"320" jsonschema:"one plain address, where an answer would go"`
		Message string `json:"message" minLength:"1" maxLength:"10000" jsonschema:"why they ask: plain text"`
		Website string `json:"website,omitempty" maxLength:"2000" jsonschema:"Leave it out or empty: forms hide this field from people, and what fills it in is refused."`
	}
	type out struct {
		RequestID uuid.UUID `json:"request_id"`
		Message   string    `json:"message" enum:"Submitted"`
	}
	return op.NewWrite(op.Spec{
		Name: "access_requests.submit", Method: "POST", Path: "/v1/public/{handle}/access-requests", Status: http.StatusCreated, Access: op.Public,
		Summary:     "Ask an owner for access",
		Description: "Saves a visitor's request for access to what the owner shares by code. 120 within an hour are taken from one address. Line breaks and other control characters in name and org become spaces.",
		MaxBody:     256 << 10,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (o out, err error) {
		if strings.TrimSpace(in.Website) != "" {
			return o, fault.New(fault.Unprocessable, "website_filled", "Leave the field website empty: it is there for programs that fill in every field. Nothing was saved.")
		}
		owner, err := auth.OwnerOf(ctx, tx, in.Handle)
		if err != nil {
			return o, err
		}
		o.Message = "Submitted"
		o.RequestID, err = access.Submit(ctx, tx, owner.ID, c.RemoteAddr, access.Ask{Name: in.Name, Org: in.Org, Email: in.Email, Message: in.Message})
		return o, err
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}
