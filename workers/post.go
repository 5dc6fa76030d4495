package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"standmeet/shared/email"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// Mailer hands a message over to the next mail server.
type Mailer = mail.Sender

// post is what the kinds that send mails share.
type post struct {
	db     *pg.DB
	log    *slog.Logger
	mailer Mailer
	keys   secret.Keys
	url    string
}

// Each recipient is handed at most recipientMost mails within any recipientPer,
// whoever they are from.
const (
	recipientMost = 30
	recipientPer  = time.Hour
)

// ownerCap bounds the mails of one kind that an owner causes.
type ownerCap struct {
	most int
	per  time.Duration
	// never: the mail doesn't wait for a turn of its recipient's
	never bool
	// first is asked in the transaction that takes the turn, before everything else:
	// it may have the mail put off, or dropped for a reason. It is the only one that
	// is looked at in its ownerCap.
	first func(ctx context.Context, tx *pg.Tx) (wait time.Duration, refused string, err error)
}

// uncapped is for mails that have a limit of their own and that nobody else's
// mails to the same recipient may hold up.
func uncapped() ownerCap { return ownerCap{never: true} }

// perOwner allows an owner at most so many mails of the job's kind within any
// per. A mail beyond that is dropped for good; its owner reads why.
func perOwner(most int, per time.Duration) ownerCap {
	return ownerCap{most: most, per: per}
}

// deliver hands m over and completes the job, whose task names the mail: m.TaskID
// is filled in. While its recipient has had too many mails, the job is put off
// without losing an attempt; beyond one of the caps its task is dropped.
func deliver[A caused](ctx context.Context, p *post, job *river.Job[A], m mail.Message, caps ...ownerCap) error {
	if p.mailer == nil {
		return permanent(errors.New("no mail server is configured"))
	}
	if len(m.Links) > 0 && p.url == "" {
		return permanent(errors.New("the address of the page is not configured (PUBLIC_URL), so the mail's link would lead nowhere"))
	}
	to, err := email.Parse(m.To.Email)
	if err != nil {
		return permanent(fmt.Errorf("the recipient %q is %w", m.To.Email, err))
	}
	owner, event := job.Args.Origin()
	t := turn{id: task.ID{Event: event, Subscriber: job.Args.Kind()}, owner: owner, recipient: strings.ToLower(to)}
	m.TaskID = t.id.String()
	var wait time.Duration
	var refused string
	err = p.db.InTx(ctx, func(tx *pg.Tx) (err error) {
		wait, refused, err = t.take(ctx, tx, caps)
		return err
	})
	switch {
	case err != nil:
		return err
	case refused != "":
		p.log.LogAttrs(ctx, slog.LevelWarn, "workers: mail dropped", slog.String("kind", t.id.Subscriber),
			slog.String("owner", owner.String()), slog.String("task", m.TaskID), slog.String("why", refused))
		return drop(ctx, p.db, job, refused)
	case wait > 0:
		return river.JobSnooze(max(wait, time.Second))
	}
	err = p.mailer.Send(ctx, m)
	if mail.Permanent(err) {
		return permanent(err)
	}
	if err != nil {
		return err
	}
	return complete(ctx, p.db, job, map[string]string{"to": m.To.Email})
}

// drop ends a job's task without its effect, for a reason that its owner reads.
func drop[A caused](ctx context.Context, db *pg.DB, job *river.Job[A], why string) error {
	if err := db.InTx(ctx, func(tx *pg.Tx) error { return task.Drop(ctx, tx, record(job, nil), why) }); err != nil {
		return err
	}
	return river.JobCancel(errors.New(why))
}

// turn is a mail's place among those that count towards the caps. A task has one
// turn however often it is tried; it counts from its latest attempt.
type turn struct {
	id    task.ID
	owner uuid.UUID
	// recipient is an address in lower case
	recipient string
}

// turnsSQL are the turns that count, those of $1 and $2 apart. A task that failed
// for good, or was cancelled, has given its turn back.
const turnsSQL = `
	FROM mail_turns m LEFT JOIN tasks t ON (t.event_id, t.subscriber) = (m.event_id, m.subscriber)
	WHERE (m.event_id, m.subscriber) <> ($1, $2) AND coalesce(t.state, '') NOT IN ('discarded', 'cancelled')`

// take takes the turn. If none is free it takes none: refused says which cap
// forbids the mail, or wait when the recipient's next turn may be free. The locks
// make those who ask at the same time ask in turn, those of what is asked first, then
// the owner's, always in this order.
func (t turn) take(ctx context.Context, tx *pg.Tx, caps []ownerCap) (wait time.Duration, refused string, err error) {
	lock := func(key string) error {
		_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, key)
		return err
	}
	waits := true
	for _, c := range caps {
		switch {
		case c.first != nil:
			if wait, refused, err := c.first(ctx, tx); err != nil || wait > 0 || refused != "" {
				return wait, refused, err
			}
			continue
		case c.never:
			waits = false
			continue
		}
		if err := lock("mail owner " + t.owner.String() + " " + t.id.Subscriber); err != nil {
			return 0, "", err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*)`+turnsSQL+` AND m.owner_id = $3 AND m.subscriber = $2 AND m.at > clock_timestamp() - $4::interval`,
			t.id.Event, t.id.Subscriber, t.owner, c.per).Scan(&n); err != nil {
			return 0, "", err
		}
		if n >= c.most {
			return 0, fmt.Sprintf("no mail: more than %d of this kind were due within %s", c.most, strings.TrimSuffix(c.per.String(), "0m0s")), nil
		}
	}
	if err := lock("mail to " + t.recipient); err != nil {
		return 0, "", err
	}
	var seconds float64
	err = pgx.ErrNoRows
	if waits {
		err = tx.QueryRow(ctx, `SELECT extract(epoch FROM m.at + $4::interval - clock_timestamp())`+turnsSQL+`
			AND m.recipient = $3 AND m.at > clock_timestamp() - $4::interval
		ORDER BY m.at DESC OFFSET $5 LIMIT 1`, t.id.Event, t.id.Subscriber, t.recipient, recipientPer, recipientMost-1).Scan(&seconds)
	}
	if err == nil {
		return max(time.Duration(seconds*float64(time.Second)), 1), "", nil
	}
	if !pg.IsNoRows(err) {
		return 0, "", err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO mail_turns (event_id, subscriber, owner_id, recipient) VALUES ($1, $2, $3, $4)
		ON CONFLICT (event_id, subscriber) DO UPDATE SET recipient = excluded.recipient, at = clock_timestamp()`,
		t.id.Event, t.id.Subscriber, t.owner, t.recipient)
	return 0, "", err
}

// keepTurns is longer than any cap looks back.
const keepTurns = 24 * time.Hour

// deleteOldTurns removes the turns that count no more, at most n, and reports how
// many.
func deleteOldTurns(ctx context.Context, db *pg.DB, n int) (int64, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM mail_turns WHERE (event_id, subscriber) IN (
			SELECT event_id, subscriber FROM mail_turns WHERE at < clock_timestamp() - $1::interval ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`,
		keepTurns, n)
	return tag.RowsAffected(), err
}
