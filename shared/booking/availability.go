package booking

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones must not depend on what the machine has installed

	"github.com/google/uuid"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// What an owner who set nothing else has, and the limits.
const (
	DefaultSlotMinutes   = 30
	DefaultBufferMinutes = 0
	DefaultLeadMinutes   = 60
	DefaultHorizonDays   = 365
	// MaxDuration is also the longest slot, in minutes.
	MaxDuration = 480

	maxRanges = 12
)

// Hours are a part of a day, as the clock on the wall shows it.
type Hours struct {
	From string `json:"from" maxLength:"5" jsonschema:"e.g. 09:00"`
	To   string `json:"to" maxLength:"5" jsonschema:"e.g. 17:00; 24:00 is the end of the day"`
}

// Week holds the hours of each weekday; a day without hours can't be booked.
type Week struct {
	Monday    []Hours `json:"monday,omitempty" maxItems:"12"`
	Tuesday   []Hours `json:"tuesday,omitempty" maxItems:"12"`
	Wednesday []Hours `json:"wednesday,omitempty" maxItems:"12"`
	Thursday  []Hours `json:"thursday,omitempty" maxItems:"12"`
	Friday    []Hours `json:"friday,omitempty" maxItems:"12"`
	Saturday  []Hours `json:"saturday,omitempty" maxItems:"12"`
	Sunday    []Hours `json:"sunday,omitempty" maxItems:"12"`
}

// days is the week with Monday first, as it is stored.
func (w *Week) days() [7]*[]Hours {
	return [7]*[]Hours{&w.Monday, &w.Tuesday, &w.Wednesday, &w.Thursday, &w.Friday, &w.Saturday, &w.Sunday}
}

func (w *Week) empty() bool {
	for _, d := range w.days() {
		if len(*d) > 0 {
			return false
		}
	}
	return true
}

// Availability is when an owner can be booked.
type Availability struct {
	Bookable       bool       `json:"bookable" jsonschema:"false: no day has hours, so nobody can book"`
	TimeZone       string     `json:"time_zone" jsonschema:"IANA name of the zone that the hours are in"`
	Weekly         Week       `json:"weekly" jsonschema:"the hours of each weekday; a day that is absent can't be booked"`
	SlotMinutes    int        `json:"slot_minutes" jsonschema:"how far apart starts are, and how long a booking is that says nothing else"`
	BufferMinutes  int        `json:"buffer_minutes" jsonschema:"what stays free after each booking"`
	LeadMinutes    int        `json:"lead_minutes" jsonschema:"how long before its start a visitor must book at the latest"`
	HorizonDays    int        `json:"horizon_days" jsonschema:"how far ahead a visitor may book"`
	MaxDurationMin int        `json:"max_duration_min" jsonschema:"the longest booking that a visitor may ask for"`
	RequiresCode   bool       `json:"requires_code" jsonschema:"true: visitors book with a redeemed access code alone. Everybody still sees the free times"`
	UpdatedAt      *time.Time `json:"updated_at,omitempty" jsonschema:"absent: never set, these are the defaults"`
}

func unset() Availability {
	return Availability{
		TimeZone: "UTC", SlotMinutes: DefaultSlotMinutes, BufferMinutes: DefaultBufferMinutes, LeadMinutes: DefaultLeadMinutes, HorizonDays: DefaultHorizonDays,
		MaxDurationMin: MaxDuration,
	}
}

// ReadAvailability reads an owner's; one that was never set has defaults and no
// hours.
func ReadAvailability(ctx context.Context, q pg.Querier, owner uuid.UUID) (Availability, error) {
	return availability(ctx, q, owner, "")
}

// LockAvailability is ReadAvailability, and lets the bookings of an owner be made
// and moved one after the other until tx ends. Without it two that overlap would
// wait for each other in the exclusion constraint, which PostgreSQL ends as a
// deadlock after a second.
func LockAvailability(ctx context.Context, tx *pg.Tx, owner uuid.UUID) (Availability, error) {
	a, err := availability(ctx, tx, owner, " FOR NO KEY UPDATE")
	if err != nil || a.UpdatedAt != nil {
		return a, err
	}
	// there is no row to lock yet, and two may be about to make it
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "availability "+owner.String()); err != nil {
		return a, err
	}
	return availability(ctx, tx, owner, " FOR NO KEY UPDATE")
}

func availability(ctx context.Context, q pg.Querier, owner uuid.UUID, lock string) (Availability, error) {
	a := unset()
	var weekly []byte
	err := q.QueryRow(ctx, `
		SELECT time_zone, weekly, slot_minutes, buffer_minutes, lead_minutes, horizon_days, max_duration_min, requires_code, updated_at FROM availability WHERE owner_id = $1`+lock, owner).
		Scan(&a.TimeZone, &weekly, &a.SlotMinutes, &a.BufferMinutes, &a.LeadMinutes, &a.HorizonDays, &a.MaxDurationMin, &a.RequiresCode, &a.UpdatedAt)
	if pg.IsNoRows(err) {
		return a, nil
	}
	if err != nil {
		return a, pg.Fault(err)
	}
	var days [7][]Hours
	if err := json.Unmarshal(weekly, &days); err != nil {
		return a, fmt.Errorf("booking: hours of %s: %w", owner, err)
	}
	for i, d := range a.Weekly.days() {
		*d = days[i]
	}
	a.Bookable = !a.Weekly.empty()
	return a, nil
}

// SetAvailability stores an owner's. Faults name the field: time_zone,
// weekly.monday[0].from and so on.
func SetAvailability(ctx context.Context, tx *pg.Tx, owner uuid.UUID, a Availability) (Availability, error) {
	if err := a.check(); err != nil {
		return a, err
	}
	var days [7][]Hours
	for i, d := range a.Weekly.days() {
		slices.SortFunc(*d, func(x, y Hours) int { return strings.Compare(x.From, y.From) })
		days[i] = *d
		if days[i] == nil {
			days[i] = []Hours{}
		}
	}
	weekly, err := json.Marshal(days)
	if err != nil {
		return a, err
	}
	a.Bookable = !a.Weekly.empty()
	err = tx.QueryRow(ctx, `
		INSERT INTO availability AS a (owner_id, time_zone, weekly, slot_minutes, buffer_minutes, lead_minutes, horizon_days, max_duration_min, requires_code)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (owner_id) DO UPDATE SET time_zone = $2, weekly = $3, slot_minutes = $4, buffer_minutes = $5, lead_minutes = $6, horizon_days = $7,
			max_duration_min = $8, requires_code = $9, updated_at = clock_timestamp()
		RETURNING updated_at`, owner, a.TimeZone, weekly, a.SlotMinutes, a.BufferMinutes, a.LeadMinutes, a.HorizonDays, a.MaxDurationMin, a.RequiresCode).Scan(&a.UpdatedAt)
	return a, err
}

// zoneName leaves out what a machine's zoneinfo directory has besides zones:
// its own choice (localtime, posixrules) and clocks with leap seconds (right/).
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)

// Zone finds an IANA time zone; fault on field time_zone.
func Zone(name string) (*time.Location, error) {
	if zoneName.MatchString(name) && name != "Local" && name != "Factory" {
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	return nil, fault.InvalidField("time_zone", "invalid_format", "time_zone must be the name of an IANA time zone, such as Europe/Berlin.")
}

var clockSyntax = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$`)

// minutes since midnight of "HH:MM".
func minutes(clock string) int {
	n := func(s string) int { return int(s[0]-'0')*10 + int(s[1]-'0') }
	return n(clock)*60 + n(clock[3:])
}

func (a *Availability) check() error {
	var faults []fault.Field
	refuse := func(field, code, format string, args ...any) {
		faults = append(faults, fault.Field{Name: field, Code: code, Detail: field + " " + fmt.Sprintf(format, args...) + "."})
	}
	if _, err := Zone(a.TimeZone); err != nil {
		faults = append(faults, fault.From(err).Fields...)
	}
	if a.MaxDurationMin < a.SlotMinutes {
		refuse("max_duration_min", "too_small", "must not be less than slot_minutes (%d)", a.SlotMinutes)
	}
	for day, hours := range a.Weekly.days() {
		name := "weekly." + strings.ToLower(time.Weekday((day+1)%7).String())
		if len(*hours) > maxRanges {
			refuse(name, "too_many", "must have at most %d parts", maxRanges)
			continue
		}
		good := true
		for i, h := range *hours {
			at := fmt.Sprintf("%s[%d]", name, i)
			for field, v := range map[string]string{at + ".from": h.From, at + ".to": h.To} {
				if !clockSyntax.MatchString(v) {
					good = false
					refuse(field, "invalid_format", "must be a time of day like 09:00, up to 24:00")
				}
			}
			if !good {
				continue
			}
			switch length := minutes(h.To) - minutes(h.From); {
			case length <= 0:
				good = false
				refuse(at+".to", "too_small", "must be after from; hours that go on after midnight belong to the next day")
			case length < a.SlotMinutes:
				good = false
				refuse(at, "too_small", "is shorter than slot_minutes, so nothing fits in")
			}
		}
		if !good {
			continue
		}
		sorted := slices.SortedFunc(slices.Values(*hours), func(x, y Hours) int { return strings.Compare(x.From, y.From) })
		for i := 1; i < len(sorted); i++ {
			if sorted[i].From < sorted[i-1].To {
				refuse(name, "overlap", "has parts that overlap: %s–%s and %s–%s", sorted[i-1].From, sorted[i-1].To, sorted[i].From, sorted[i].To)
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.SortFunc(faults, func(x, y fault.Field) int { return strings.Compare(x.Name, y.Name) })
	return &fault.Fault{Kind: fault.Invalid, Code: "invalid_request", Detail: faults[0].Detail, Fields: faults}
}
