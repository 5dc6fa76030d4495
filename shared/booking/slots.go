package booking

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// Slot is a time that can be booked.
type Slot struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// rules are an availability that is ready to compute with.
type rules struct {
	Availability
	loc *time.Location
}

func (a Availability) rules() (rules, error) {
	loc, err := Zone(a.TimeZone)
	return rules{a, loc}, err
}

// Bounds are the times between which a visitor may choose a start.
func (a Availability) Bounds(now time.Time) (earliest, latest time.Time) {
	now = now.UTC() // a day has 24 hours here, wherever the server stands
	return now.Add(time.Duration(a.LeadMinutes) * time.Minute), now.AddDate(0, 0, a.HorizonDays)
}

// Length is how long a booking of so many minutes is; 0 is the slot's own length.
func (a Availability) Length(durationMin int) time.Duration {
	if durationMin == 0 {
		durationMin = a.SlotMinutes
	}
	return time.Duration(durationMin) * time.Minute
}

// Allows refuses a length that a visitor may not ask for: fault on field
// duration_min.
func (a Availability) Allows(durationMin int) error {
	if durationMin > a.MaxDurationMin {
		return fault.InvalidField("duration_min", "too_large", fmt.Sprintf("duration_min may be %d at most here.", a.MaxDurationMin))
	}
	return nil
}

func (a Availability) buffer() time.Duration { return time.Duration(a.BufferMinutes) * time.Minute }

// wall is what the clock on the wall shows, as seconds since 1970 on that clock.
// Its difference to the Unix time is the offset.
func wall(t time.Time) int64 {
	_, offset := t.Zone()
	return t.Unix() + int64(offset)
}

// startsOf are the times at which the clock shows w, in order: none where the
// clock skips w, two where it goes back over it.
func (r rules) startsOf(w int64) (found []time.Time) {
	// no zone is further from UTC than this
	const far = 26 * time.Hour
	around := time.Unix(w, 0)
	for t := around.Add(-far); ; {
		t = t.In(r.loc)
		_, offset := t.Zone()
		if s := time.Unix(w-int64(offset), 0).In(r.loc); wall(s) == w && !slices.ContainsFunc(found, s.Equal) {
			found = append(found, s)
		}
		_, end := t.ZoneBounds()
		if end.IsZero() || end.After(around.Add(far)) {
			slices.SortFunc(found, time.Time.Compare)
			return found
		}
		t = end
	}
}

// fits reports whether a booking may begin at start by the weekly hours: the
// clock shows the beginning of a slot then, and from start to end it shows
// nothing outside of the hours that the slot is in. Where the clock is set back
// or forth meanwhile, that is so on both sides of the change.
func (r rules) fits(start time.Time, length time.Duration) bool {
	local := start.In(r.loc)
	if local.Second() != 0 || local.Nanosecond() != 0 {
		return false
	}
	minute := local.Hour()*60 + local.Minute()
	midnight := wall(local) - int64(minute)*60
	for _, h := range *r.Weekly.days()[(int(local.Weekday())+6)%7] {
		from, to := minutes(h.From), minutes(h.To)
		if minute >= from && minute < to && (minute-from)%r.SlotMinutes == 0 &&
			within(local, local.Add(length), midnight+int64(from)*60, midnight+int64(to)*60) {
			return true
		}
	}
	return false
}

// within reports whether the clock shows only times of [from, to) during
// [start, end).
func within(start, end time.Time, from, to int64) bool {
	for t := start; t.Before(end); {
		until := end
		if _, change := t.ZoneBounds(); !change.IsZero() && change.Before(end) {
			until = change
		}
		if shown := wall(t); shown < from || shown+int64(until.Sub(t)/time.Second) > to {
			return false
		}
		t = until.In(t.Location())
	}
	return true
}

// Offers reports whether the weekly hours have a slot that begins at start and
// is that long, whether or not it is taken, and between which times a visitor may
// choose.
func (a Availability) Offers(start time.Time, length time.Duration) (bool, error) {
	if !a.Bookable {
		return false, nil
	}
	r, err := a.rules()
	return err == nil && r.fits(start, length), err
}

// starts are the slots by the weekly hours that begin in [from, to), in order.
func (r rules) starts(from, to time.Time, length time.Duration) (found []time.Time) {
	y, m, d := from.In(r.loc).Date()
	last := to.In(r.loc)
	for day := time.Date(y, m, d-1, 0, 0, 0, 0, time.UTC); ; day = day.AddDate(0, 0, 1) {
		if day.Unix() > wall(last)+24*60*60 {
			break
		}
		for _, h := range *r.Weekly.days()[(int(day.Weekday())+6)%7] {
			for minute := minutes(h.From); minute < minutes(h.To); minute += r.SlotMinutes {
				for _, s := range r.startsOf(day.Unix() + int64(minute)*60) {
					if !s.Before(from) && s.Before(to) && r.fits(s, length) {
						found = append(found, s.UTC())
					}
				}
			}
		}
	}
	slices.SortFunc(found, time.Time.Compare)
	return found
}

// Slots are what a visitor can book of [from, to) now: by the hours, the lead time
// and the horizon, and not taken.
func Slots(ctx context.Context, q pg.Querier, owner uuid.UUID, a Availability, from, to, now time.Time, length time.Duration) ([]Slot, error) {
	earliest, latest := a.Bounds(now)
	if from.Before(earliest) {
		from = earliest
	}
	// the horizon itself may still be booked
	if latest = latest.Add(time.Nanosecond); to.After(latest) {
		to = latest
	}
	if !a.Bookable || !from.Before(to) {
		return nil, nil
	}
	r, err := a.rules()
	if err != nil {
		return nil, err
	}
	taken, err := busy(ctx, q, owner, from, to.Add(length+a.buffer()))
	if err != nil {
		return nil, err
	}
	var free []Slot
	for _, s := range r.starts(from, to, length) {
		end := s.Add(length)
		// they don't overlap each other, so the first that ends after s decides
		i := sort.Search(len(taken), func(i int) bool { return taken[i].End.After(s) })
		if i == len(taken) || !taken[i].Start.Before(end.Add(a.buffer())) {
			free = append(free, Slot{s, end})
		}
	}
	return free, nil
}

// busy are the spans of [from, to) that bookings hold, with their buffers, in
// order.
func busy(ctx context.Context, q pg.Querier, owner uuid.UUID, from, to time.Time) ([]Slot, error) {
	rows, err := q.Query(ctx, `
		SELECT lower(busy), upper(busy) FROM bookings
		WHERE owner_id = $1 AND state = 'confirmed' AND busy && tstzrange($2, $3)
		ORDER BY 1`, owner, from, to)
	if err != nil {
		return nil, pg.Fault(err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Slot])
	return taken, pg.Fault(err)
}
