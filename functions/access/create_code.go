package access

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// CodeMade answers codes.create.
type CodeMade struct {
	Code    string      `json:"code,omitempty" jsonschema:"the code itself. Absent only when a repetition under the same idempotency_key meets an installation that has lost the key that made it"`
	Link    string      `json:"link,omitempty" jsonschema:"where a person redeems the code; absent without the code"`
	Details access.Code `json:"details"`
}

// CreateCode declares codes.create. Faults: "keys_not_configured",
// "public_url_not_configured" (409).
func CreateCode(d Deps) *op.Operation {
	type in struct {
		Label string `json:"label" minLength:"1" maxLength:"200" jsonschema:"what the owner calls the code, e.g. whom it is for"`
		Limits
	}
	type committed struct {
		Code uuid.UUID `json:"code"`
	}
	return op.NewWrite(op.Spec{
		Name: "codes.create", Method: "POST", Path: "/v1/codes", Status: http.StatusCreated, Scope: "access:write",
		Summary:     "Create an access code",
		Description: `Makes an access code without a request, to be handed over by the owner: nothing is mailed. Who redeems it sees the notes that are shared by code. Example: {"label": "Book club", "member_limit": 12}.`,
		Tool:        &op.Tool{},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (made committed, err error) {
		made.Code, err = access.Create(ctx, tx, c.OwnerID, d.making(), in.terms(in.Label))
		return made, err
	}, func(ctx context.Context, c auth.Caller, made committed) (out CodeMade, err error) {
		shown, err := d.shown(ctx, c, made.Code)
		if err != nil {
			return out, err
		}
		out.Code, out.Link = shown.Code, shown.Link
		out.Details, err = access.GetCode(ctx, d.DB, c.OwnerID, made.Code)
		return out, err
	})
}
