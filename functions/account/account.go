// Package account holds what an owner does with their account: tokens, signing
// in and out, the password, the test mail.
package account

import (
	"standmeet/shared/auth"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// Deps is what these operations need.
type Deps struct {
	DB       *pg.DB
	Receipts *task.Receipts
	Auth     *auth.Store
	// Mail: there is a mail supplier, so that a link can be asked for by mail.
	Mail bool
	// HTTPS: people come by HTTPS alone, and so go the cookies.
	HTTPS bool
}
