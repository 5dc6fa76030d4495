// Package limit bounds how often something may happen, for all processes
// together: the generic cell rate algorithm (ITU-T I.371), one row for each key.
package limit

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"time"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// Rule allows Most times within Per, all at once if need be.
type Rule struct {
	// Name keeps the keys of different rules apart.
	Name string
	Most int
	Per  time.Duration
	// Detail is the sentence of the refusal; empty is a general one.
	Detail string
}

func (r Rule) each() time.Duration { return r.Per / time.Duration(r.Most) }

// Take counts one use by key, or refuses it: fault "rate_limited" (429) with
// the time after which it would be allowed, and nothing counted. Within a
// transaction the row stays locked until its end.
func (r Rule) Take(ctx context.Context, q pg.Querier, key string) error {
	var taken, wait float64
	err := q.QueryRow(ctx, `
		WITH took AS (
			INSERT INTO rate_limits AS r (bucket, key, tat) VALUES ($1, $2, clock_timestamp() + $3)
			ON CONFLICT (bucket, key) DO UPDATE SET tat = greatest(r.tat, clock_timestamp()) + $3
			WHERE greatest(r.tat, clock_timestamp()) + $3 <= clock_timestamp() + $4
			RETURNING 1)
		SELECT (SELECT count(*) FROM took), coalesce((
			SELECT extract(epoch FROM tat + $3 - $4 - clock_timestamp()) FROM rate_limits WHERE (bucket, key) = ($1, $2)), 0)`,
		r.Name, key, r.each(), r.Per).Scan(&taken, &wait)
	if err != nil {
		return pg.Fault(err)
	}
	if taken > 0 {
		return nil
	}
	return r.refusal(time.Duration(wait * float64(time.Second)))
}

// Check refuses as Take would, and counts nothing.
func (r Rule) Check(ctx context.Context, q pg.Querier, key string) error {
	var wait float64
	err := q.QueryRow(ctx, `
		SELECT extract(epoch FROM tat + $3::interval - $4::interval - clock_timestamp()) FROM rate_limits WHERE (bucket, key) = ($1, $2)`,
		r.Name, key, r.each(), r.Per).Scan(&wait)
	if pg.IsNoRows(err) || err == nil && wait <= 0 {
		return nil
	}
	if err != nil {
		return pg.Fault(err)
	}
	return r.refusal(time.Duration(wait * float64(time.Second)))
}

// GiveBack undoes a Take.
func (r Rule) GiveBack(ctx context.Context, q pg.Querier, key string) error {
	var one int
	err := q.QueryRow(ctx, `UPDATE rate_limits SET tat = tat - $3::interval WHERE (bucket, key) = ($1, $2) RETURNING 1`, r.Name, key, r.each()).Scan(&one)
	if pg.IsNoRows(err) {
		return nil
	}
	return pg.Fault(err)
}

func (r Rule) refusal(wait time.Duration) error {
	detail := r.Detail
	if detail == "" {
		detail = "That was too often from this address."
	}
	return &fault.Fault{
		Kind: fault.RateLimited, Code: "rate_limited", RetryAfter: max(wait, time.Second),
		Detail: detail + " Try again in " + inWords(max(wait, time.Second)) + ".",
	}
}

// inWords says how long to wait, rounded up to what people count in.
func inWords(d time.Duration) string {
	for _, unit := range []struct {
		name string
		is   time.Duration
		upTo time.Duration
	}{{"second", time.Second, 90 * time.Second}, {"minute", time.Minute, 90 * time.Minute}, {"hour", time.Hour, math.MaxInt64}} {
		if d > unit.upTo {
			continue
		}
		n := int64((d + unit.is - 1) / unit.is)
		if n == 1 {
			return "1 " + unit.name
		}
		return fmt.Sprintf("%d %ss", n, unit.name)
	}
	return ""
}

// Address is the key of a caller's IP address: an IPv6 network of 64 bits is one
// caller, because each of its hosts has as many addresses as it likes. What is no
// address is a key of its own.
func Address(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return addr
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}

// DeleteOld removes the rows that limit nothing any more, at most n, and reports
// how many.
func DeleteOld(ctx context.Context, db *pg.DB, n int) (int64, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM rate_limits WHERE (bucket, key) IN (
			SELECT bucket, key FROM rate_limits WHERE tat < clock_timestamp() ORDER BY tat LIMIT $1 FOR UPDATE SKIP LOCKED)`, n)
	return tag.RowsAffected(), err
}
