// Package account holds what an owner does with their account: tokens, signing
// in and out, the test mail.
package account

import (
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// Deps is what these operations need.
type Deps struct {
	DB       *pg.DB
	Receipts *task.Receipts
}
