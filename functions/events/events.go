// Package events holds the owner's operations on the outbox.
package events

import (
	"standmeet/shared/pg"
	"standmeet/shared/waiter"
)

// Deps is what these operations need. The waiter has outbox.FanoutSource.
type Deps struct {
	DB     *pg.DB
	Waiter *waiter.Waiter
}
