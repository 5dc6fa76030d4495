package booking

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

// every is a week with the same hours each day.
func every(hours ...Hours) (w Week) {
	for _, d := range w.days() {
		*d = hours
	}
	return w
}

func open(zone string, slot int, w Week) Availability {
	a := unset()
	a.TimeZone, a.SlotMinutes, a.Weekly, a.Bookable = zone, slot, w, true
	return a
}

func mustRules(t testing.TB, a Availability) rules {
	t.Helper()
	if err := a.check(); err != nil {
		t.Fatal(err)
	}
	r, err := a.rules()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Case B2: the hours are what the clock shows, on both sides of both changes.
func TestFirstSlotFollowsTheClock(t *testing.T) {
	r := mustRules(t, open("Europe/Berlin", 30, every(Hours{"09:00", "17:00"})))
	for day, want := range map[string]string{
		"2027-03-26": "2027-03-26T08:00:00Z", "2027-03-29": "2027-03-29T07:00:00Z",
		"2027-10-29": "2027-10-29T07:00:00Z", "2027-11-01": "2027-11-01T08:00:00Z",
	} {
		from := at(day + "T00:00:00Z")
		got := r.starts(from, from.Add(20*time.Hour), 30*time.Minute)
		if len(got) != 16 || got[0].Format(time.RFC3339) != want {
			t.Errorf("%s: %d slots from %v, want 16 from %s", day, len(got), got[0], want)
		}
	}
}

// clocks are what the wall shows at times, with the offset.
func clocks(zone string, times []time.Time) string {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	var all []string
	for _, s := range times {
		all = append(all, s.In(loc).Format("15:04-07:00"))
	}
	return strings.ReplaceAll(strings.Join(all, " "), ":00 ", " ")
}

func TestSlotsOnTheDayOfAChange(t *testing.T) {
	for _, c := range []struct {
		zone, day   string
		slot        int
		hours       Hours
		durationMin int
		want        string
	}{
		// what the clock skips is not offered
		{"Europe/Berlin", "2027-03-28", 30, Hours{"01:00", "04:00"}, 30, "01:00+01 01:30+01 03:00+02 03:30+02:00"},
		{"America/New_York", "2027-03-14", 30, Hours{"01:00", "04:00"}, 30, "01:00-05 01:30-05 03:00-04 03:30-04:00"},
		{"Australia/Lord_Howe", "2027-10-03", 30, Hours{"01:00", "04:00"}, 30, "01:00+10:30 01:30+10:30 02:30+11 03:00+11 03:30+11:00"},
		// what it shows twice is offered twice
		{"Europe/Berlin", "2027-10-31", 30, Hours{"01:30", "03:30"}, 30, "01:30+02 02:00+02 02:30+02 02:00+01 02:30+01 03:00+01:00"},
		{"America/New_York", "2027-11-07", 30, Hours{"00:30", "02:30"}, 30, "00:30-04 01:00-04 01:30-04 01:00-05 01:30-05 02:00-05:00"},
		{"Australia/Lord_Howe", "2027-04-04", 30, Hours{"01:00", "03:00"}, 30, "01:00+11 01:30+11 01:30+10:30 02:00+10:30 02:30+10:30"},
		// slots stay on the hour when the clock moves by half of one
		{"Australia/Lord_Howe", "2027-10-03", 60, Hours{"00:00", "05:00"}, 60, "00:00+10:30 01:00+10:30 03:00+11 04:00+11:00"},
		{"Australia/Lord_Howe", "2027-04-04", 60, Hours{"00:00", "04:00"}, 60, "00:00+11 01:00+11 02:00+10:30 03:00+10:30"},
		{"Asia/Shanghai", "2027-03-28", 60, Hours{"00:00", "03:00"}, 60, "00:00+08 01:00+08 02:00+08:00"},
		// an hour that goes by while the clock skips one ends two hours later on it
		{"Europe/Berlin", "2027-03-28", 60, Hours{"01:00", "03:00"}, 60, "01:00+01:00"},
		{"Europe/Berlin", "2027-03-28", 30, Hours{"01:30", "02:30"}, 30, "01:30+01:00"},
		{"Europe/Berlin", "2027-03-28", 30, Hours{"02:00", "03:00"}, 30, ""},
		// and one that goes by while it is set back must not show what is before the hours
		{"Europe/Berlin", "2027-10-31", 60, Hours{"02:30", "03:30"}, 60, "02:30+01:00"},
		{"Europe/Berlin", "2027-10-31", 30, Hours{"02:00", "02:30"}, 30, "02:00+02 02:00+01:00"},
		// longer than a slot, still from each slot's beginning
		{"Europe/Berlin", "2027-06-01", 30, Hours{"09:00", "10:30"}, 60, "09:00+02 09:30+02:00"},
		{"Europe/Berlin", "2027-06-01", 30, Hours{"23:00", "24:00"}, 30, "23:00+02 23:30+02:00"},
		// midnight itself is skipped
		{"America/Santiago", "2027-09-05", 60, Hours{"00:00", "03:00"}, 60, "01:00-03 02:00-03:00"},
	} {
		r := mustRules(t, open(c.zone, c.slot, every(c.hours)))
		midnight, err := time.ParseInLocation("2006-01-02", c.day, r.loc)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.DeleteFunc(r.starts(midnight, midnight.Add(26*time.Hour), time.Duration(c.durationMin)*time.Minute), func(s time.Time) bool {
			return s.In(r.loc).Format(time.DateOnly) != c.day
		})
		got := clocks(c.zone, found)
		if got != c.want {
			t.Errorf("%s %s %v, slots of %d, for %d min:\n got %s\nwant %s", c.zone, c.day, c.hours, c.slot, c.durationMin, got, c.want)
		}
	}
}

// naive finds the slots in another way: it goes through the minutes one by one and
// looks at the clock at each.
func naive(a Availability, loc *time.Location, from, to time.Time, length time.Duration) (found []time.Time) {
	inHours := func(t time.Time, h Hours, date string) bool {
		clock := t.In(loc).Format("15:04")
		return t.In(loc).Format(time.DateOnly) == date && clock >= h.From && clock < h.To
	}
	for s := from.Truncate(time.Minute); s.Before(to); s = s.Add(time.Minute) {
		if s.Before(from) {
			continue
		}
		local := s.In(loc)
		for _, h := range *a.Weekly.days()[(int(local.Weekday())+6)%7] {
			clock := local.Format("15:04")
			if clock < h.From || clock >= h.To || (minutes(clock)-minutes(h.From))%a.SlotMinutes != 0 {
				continue
			}
			good := true
			for m := s; m.Before(s.Add(length)) && good; m = m.Add(time.Minute) {
				good = inHours(m, h, local.Format(time.DateOnly))
			}
			if good {
				found = append(found, s.UTC())
			}
		}
	}
	return found
}

func TestSlotsAreThoseThatTheClockShows(t *testing.T) {
	zones := map[string][]string{
		"Europe/Berlin":       {"2027-03-27", "2027-10-30", "2027-07-01"},
		"America/New_York":    {"2027-03-13", "2027-11-06"},
		"Asia/Shanghai":       {"2027-03-27", "2027-10-30"},
		"Australia/Lord_Howe": {"2027-04-03", "2027-10-02"},
		"America/Santiago":    {"2027-04-03", "2027-09-04"},
		"Africa/Casablanca":   {"2027-02-06", "2027-03-13"},
		"Pacific/Apia":        {"2011-12-29"}, // without a 30th
		"UTC":                 {"2027-01-01"},
	}
	random := rand.New(rand.NewPCG(7, 11))
	clock := func(m int) string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }
	for zone, days := range zones {
		for _, day := range days {
			for range 12 {
				slot := []int{5, 10, 15, 20, 30, 45, 60, 90, 120}[random.IntN(9)]
				var week Week
				for _, d := range week.days() {
					for from := random.IntN(300); from+slot < 24*60; {
						to := min(from+slot+random.IntN(500), 24*60)
						*d = append(*d, Hours{clock(from), clock(to)})
						from = to + random.IntN(200)
						if len(*d) == 12 {
							break
						}
					}
				}
				a := open(zone, slot, week)
				r := mustRules(t, a)
				from := at(day + "T00:00:00Z").Add(-time.Duration(random.IntN(1000)) * time.Second)
				length := a.Length([]int{0, 0, 5, 25, 60, 180}[random.IntN(6)])
				to := from.Add(72 * time.Hour)
				got, want := r.starts(from, to, length), naive(a, r.loc, from, to, length)
				if !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Errorf("%s %s %+v for %v:\n got %s\nwant %s", zone, day, a, length, clocks(zone, got), clocks(zone, want))
				}
				for _, s := range got {
					if ok, err := a.Offers(s, length); !ok || err != nil {
						t.Errorf("%s %v is listed and not offered: %v", zone, s, err)
					}
				}
			}
		}
	}
}

func TestOffersNothingBetweenSlots(t *testing.T) {
	a := open("Europe/Berlin", 30, every(Hours{"09:00", "17:00"}))
	for start, want := range map[string]bool{
		"2027-03-29T07:00:00Z": true, "2027-03-29T14:30:00Z": true, "2027-03-29T15:00:00Z": false, "2027-03-29T06:30:00Z": false,
		"2027-03-29T07:10:00Z": false, "2027-03-29T07:00:01Z": false, "2027-03-29T07:00:00.5Z": false, "2027-03-29T09:00:00+02:00": true,
	} {
		if got, err := a.Offers(at(start), 30*time.Minute); got != want || err != nil {
			t.Errorf("%s: %v, %v", start, got, err)
		}
	}
	a.Bookable = false
	if got, err := a.Offers(at("2027-03-29T07:00:00Z"), 30*time.Minute); got || err != nil {
		t.Errorf("nobody can book, and %v, %v", got, err)
	}
}

func TestWhen(t *testing.T) {
	for _, c := range [][4]string{
		{"2027-03-29T07:00:00Z", "2027-03-29T07:30:00Z", "Europe/Berlin", "Monday, 29 March 2027, 09:00–09:30 Europe/Berlin (UTC+02:00)"},
		{"2027-03-26T08:00:00Z", "2027-03-26T08:30:00Z", "Europe/Berlin", "Friday, 26 March 2027, 09:00–09:30 Europe/Berlin (UTC+01:00)"},
		{"2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z", "Europe/Berlin", "Sunday, 28 March 2027, 01:30 (UTC+01:00) to 03:30 (UTC+02:00), Europe/Berlin"},
		{"2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "Europe/Berlin", "Sunday, 31 October 2027, 02:30 (UTC+02:00) to 02:30 (UTC+01:00), Europe/Berlin"},
		{"2027-10-31T00:30:00Z", "2027-10-31T01:00:00Z", "Europe/Berlin", "Sunday, 31 October 2027, 02:30 (UTC+02:00) to 02:00 (UTC+01:00), Europe/Berlin"},
		{"2027-10-30T21:30:00Z", "2027-10-31T01:00:00Z", "Europe/Berlin", "Saturday, 30 October 2027, 23:30 (UTC+02:00) to Sunday, 31 October 2027, 02:00 (UTC+01:00), Europe/Berlin"},
		{"2027-03-29T07:00:00Z", "2027-03-29T07:30:00Z", "America/New_York", "Monday, 29 March 2027, 03:00–03:30 America/New_York (UTC-04:00)"},
		{"2027-03-29T07:00:00Z", "2027-03-29T07:30:00Z", "Australia/Lord_Howe", "Monday, 29 March 2027, 18:00–18:30 Australia/Lord_Howe (UTC+11:00)"},
		{"2027-07-29T07:00:00Z", "2027-07-29T07:30:00Z", "Australia/Lord_Howe", "Thursday, 29 July 2027, 17:30–18:00 Australia/Lord_Howe (UTC+10:30)"},
		{"2027-03-29T15:30:00Z", "2027-03-29T16:30:00Z", "Asia/Shanghai", "Monday, 29 March 2027, 23:30 to Tuesday, 30 March 2027, 00:30 Asia/Shanghai (UTC+08:00)"},
		{"2027-03-29T07:00:00Z", "2027-03-29T07:30:00Z", "UTC", "Monday, 29 March 2027, 07:00–07:30 UTC"},
	} {
		if got := When(at(c[0]), at(c[1]), c[2]); got != c[3] {
			t.Errorf("got %s\nwant %s", got, c[3])
		}
	}
}
