package auth

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/email"
	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// Profile is what is known of an owner.
type Profile struct {
	ID uuid.UUID `json:"id"`
	// Handle is the owner's public name, unique, of a-z, 0-9 and hyphens.
	Handle    string    `json:"handle" jsonschema:"the owner's public name, as in /v1/public/{handle}"`
	Name      string    `json:"name"`
	Email     string    `json:"email" jsonschema:"where mail to the owner goes"`
	CreatedAt time.Time `json:"created_at"`
}

// EnsureOwner makes the owner with p's handle unless there is one, whose name
// and address then stay as they are. ID and CreatedAt of p are not looked at.
func EnsureOwner(ctx context.Context, tx *pg.Tx, p Profile) (Profile, error) {
	address, err := email.Parse(p.Email)
	if err != nil {
		return p, fault.InvalidField("email", "invalid_format", "email must be a plain e-mail address.")
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO owners (id, handle, name, email) VALUES ($1, $2, $3, $4) ON CONFLICT (handle) DO NOTHING`,
		uuid.New(), p.Handle, p.Name, address); err != nil {
		if pg.Violates(err, "owners_handle_format") {
			return p, fault.InvalidField("handle", "invalid_format", "handle must be 1 to 63 of a-z, 0-9 and hyphens, and not begin with a hyphen.")
		}
		return p, err
	}
	return profile(ctx, tx, `handle = $1`, p.Handle)
}

// GetOwner reads an owner; fault "not_found".
func GetOwner(ctx context.Context, q pg.Querier, id uuid.UUID) (Profile, error) {
	return profile(ctx, q, `id = $1`, id)
}

func profile(ctx context.Context, q pg.Querier, where string, arg any) (p Profile, err error) {
	err = q.QueryRow(ctx, `SELECT id, handle, name, email, created_at FROM owners WHERE `+where, arg).
		Scan(&p.ID, &p.Handle, &p.Name, &p.Email, &p.CreatedAt)
	if pg.IsNoRows(err) {
		return p, fault.NotFound("owner")
	}
	return p, pg.Fault(err)
}

// OwnerOf finds an owner by their public name; fault "not_found".
func OwnerOf(ctx context.Context, q pg.Querier, handle string) (Profile, error) {
	return profile(ctx, q, `handle = $1`, handle)
}
