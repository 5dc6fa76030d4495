package bookings_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/functions/bookings"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/secret"
	"standmeet/shared/task"
)

// world is an owner, and another, with the functions of bookings on a server.
type world struct {
	*testing.T
	db           *pg.DB
	url          string
	me           auth.Profile
	token, other string
}

const publicURL = "https://page.example"

func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return setupAlone(t)
}

// setupAlone is for a test in which a hundred ask at once, beside no other.
func setupAlone(t *testing.T) *world {
	t.Helper()
	db := pgtest.Open(t, pgtest.URL(t), pg.Options{MaxConns: 8})
	keys, err := secret.ParseKeys(strings.Repeat("QUJD", 11))
	if err != nil {
		t.Fatal(err)
	}
	d := bookings.Deps{DB: db, Keys: keys, PublicURL: publicURL}
	store := &auth.Store{DB: db}
	t.Cleanup(func() { store.Flush(context.Background()) })
	s := httptest.NewServer(op.NewCatalog(
		bookings.GetAvailability(d), bookings.SetAvailability(d), bookings.Slots(d), bookings.Create(d), bookings.List(d), bookings.Get(d),
		bookings.Reschedule(d), bookings.Cancel(d), bookings.File(d), bookings.CreateFeed(d), bookings.RevokeFeed(d), bookings.Feed(d),
	).Handler(&op.Server{Authenticate: store.Authenticate}))
	t.Cleanup(s.Close)
	w := &world{T: t, db: db, url: s.URL}
	for handle, token := range map[string]*string{"me": &w.token, "other": &w.other} {
		err := db.InTx(t.Context(), func(tx *pg.Tx) error {
			owner, err := auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: handle, Name: "Ola, \"O\" Owner", Email: handle + "@example.test"})
			if err != nil {
				return err
			}
			if handle == "me" {
				w.me = owner
			}
			_, *token, err = auth.CreateToken(t.Context(), tx, owner.ID, auth.Token{Name: "first", Scopes: []string{"*"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

type object = map[string]any

type answer struct {
	status int
	header http.Header
	body   object
	raw    string
}

func (a answer) at(path string) any {
	var v any = a.body
	for key := range strings.SplitSeq(path, ".") {
		in, _ := v.(object)
		v = in[key]
	}
	return v
}

func (a answer) text(path string) string { s, _ := a.at(path).(string); return s }

func (w *world) call(token, method, path string, body any, headers ...string) answer {
	w.Helper()
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			w.Fatal(err)
		}
		payload = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, payload)
	if err != nil {
		w.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Error(err) // not Fatal: it may be another goroutine
		return answer{}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		w.Error(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			w.Errorf("%v: %s", err, raw)
		}
	}
	return a
}

func (w *world) must(token, method, path string, body any, headers ...string) answer {
	w.Helper()
	a := w.call(token, method, path, body, headers...)
	if a.status/100 != 2 {
		w.Fatalf("%s %s %v: %d %s", method, path, body, a.status, a.raw)
	}
	return a
}

// refused checks that a call fails as it should.
func (w *world) refused(a answer, status int, code string) {
	w.Helper()
	if a.status != status || a.text("code") != code {
		w.Errorf("%d %s, want %d %s", a.status, a.raw, status, code)
	}
}

func (w *world) count(query string, args ...any) (n int) {
	w.Helper()
	if err := w.db.QueryRow(w.Context(), query, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) exec(query string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(w.Context(), query, args...); err != nil {
		w.Fatal(err)
	}
}

// open lets visitors book around the clock in UTC, without lead time.
func (w *world) open(more object) {
	w.Helper()
	all := []object{{"from": "00:00", "to": "24:00"}}
	set := object{"time_zone": "UTC", "lead_minutes": 0, "weekly": object{
		"monday": all, "tuesday": all, "wednesday": all, "thursday": all, "friday": all, "saturday": all, "sunday": all,
	}}
	maps.Copy(set, more)
	w.must(w.token, "PUT", "/v1/availability", set)
}

// day is midnight in UTC, some days from now.
func day(n int) time.Time { return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, n) }

func request(start time.Time) object {
	return object{"start": start.Format(time.RFC3339), "name": "Vera Visitor", "email": "vera@example.test", "topic": "A talk"}
}

func with(o object, more object) object {
	o = maps.Clone(o)
	maps.Copy(o, more)
	return o
}

const create = "/v1/public/me/bookings"

func (w *world) book(start time.Time, more object) answer {
	w.Helper()
	return w.must("", "POST", create, with(request(start), more))
}

func (w *world) slots(query string) (starts []string) {
	w.Helper()
	a := w.must("", "GET", create+"/slots"+query, nil)
	list, ok := a.at("slots").([]any)
	if !ok {
		w.Fatalf("%s", a.raw)
	}
	for _, s := range list {
		starts = append(starts, s.(object)["start"].(string))
	}
	return starts
}

// rows is everything that a write may leave.
func (w *world) rows() string {
	w.Helper()
	var s string
	if err := w.db.QueryRow(w.Context(), `
		SELECT concat_ws('/', (SELECT count(*) FROM bookings), (SELECT coalesce(sum(sequence), 0) FROM bookings), (SELECT count(*) FROM events), (SELECT count(*) FROM event_queue),
			(SELECT count(*) FROM tasks), (SELECT count(*) FROM idempotency_keys), (SELECT md5(string_agg(a::text, '|')) FROM availability a), (SELECT md5(string_agg(b::text, '|' ORDER BY id)) FROM bookings b))`).Scan(&s); err != nil {
		w.Fatal(err)
	}
	return s
}

func TestAvailability(t *testing.T) {
	w := setup(t)
	unset := w.must(w.token, "GET", "/v1/availability", nil)
	if unset.at("bookable") != false || unset.at("time_zone") != "UTC" || unset.at("slot_minutes") != 30.0 || unset.at("updated_at") != nil {
		t.Errorf("never set: %s", unset.raw)
	}
	if got := w.must("", "GET", create+"/slots", nil); got.at("bookable") != false || len(got.at("slots").([]any)) != 0 {
		t.Errorf("slots of one who never set any: %s", got.raw)
	}
	w.refused(w.call("", "POST", create, request(day(3))), 422, "slot_not_offered")

	set := w.must(w.token, "PUT", "/v1/availability", object{"time_zone": "Europe/Berlin", "slot_minutes": 45, "lead_minutes": 0, "weekly": object{
		"monday": []object{{"from": "13:00", "to": "17:00"}, {"from": "09:00", "to": "12:00"}}, "sunday": []object{{"from": "22:00", "to": "24:00"}},
	}})
	if set.at("bookable") != true || set.at("weekly.monday").([]any)[0].(object)["from"] != "09:00" || set.at("weekly.tuesday") != nil || set.at("updated_at") == nil {
		t.Errorf("%s", set.raw)
	}
	// absent keeps, null clears
	kept := w.must(w.token, "PUT", "/v1/availability", object{"buffer_minutes": 15, "slot_minutes": nil})
	if kept.at("time_zone") != "Europe/Berlin" || kept.at("slot_minutes") != 30.0 || kept.at("buffer_minutes") != 15.0 || kept.at("lead_minutes") != 0.0 || len(kept.at("weekly.monday").([]any)) != 2 {
		t.Errorf("%s", kept.raw)
	}
	if got := w.must(w.token, "GET", "/v1/availability", nil); got.raw != kept.raw {
		t.Errorf("%s\nis not\n%s", got.raw, kept.raw)
	}
	if got := w.must(w.other, "GET", "/v1/availability", nil); got.at("bookable") != false {
		t.Errorf("another owner's: %s", got.raw)
	}
	// so it is for each day, and for the zone
	week := func(a answer) string {
		var days []string
		for day := range a.at("weekly").(object) {
			days = append(days, day)
		}
		slices.Sort(days)
		return strings.Join(days, " ")
	}
	day := []object{{"from": "10:00", "to": "11:00"}}
	for _, c := range []struct {
		weekly any
		want   string
	}{
		{object{"tuesday": day}, "monday sunday tuesday"}, {object{"monday": nil}, "sunday tuesday"}, {object{"sunday": []object{}, "friday": day}, "friday tuesday"},
		{object{}, "friday tuesday"}, {nil, ""}, {object{"monday": day}, "monday"},
	} {
		if got := w.must(w.token, "PUT", "/v1/availability", object{"weekly": c.weekly}); week(got) != c.want || got.at("bookable") != (c.want != "") {
			t.Errorf("%v: %s, want %s", c.weekly, got.raw, c.want)
		}
	}
	if got := w.must(w.token, "PUT", "/v1/availability", object{"time_zone": nil}); got.at("time_zone") != "UTC" {
		t.Errorf("%s", got.raw)
	}
	before := w.rows()
	hours := func(from, to string) object { return object{"monday": []object{{"from": from, "to": to}}} }
	for _, c := range []struct {
		set   object
		field string
	}{
		{object{"time_zone": ""}, "time_zone"}, {object{"time_zone": " "}, "time_zone"}, {object{"max_duration_min": 4}, "max_duration_min"}, {object{"max_duration_min": 29}, "max_duration_min"},
		{object{"weekly": object{"monday": ""}}, "weekly.monday"}, {object{"time_zone": "Berlin"}, "time_zone"}, {object{"time_zone": "Local"}, "time_zone"}, {object{"time_zone": "localtime"}, "time_zone"},
		{object{"time_zone": "../etc/passwd"}, "time_zone"}, {object{"time_zone": "right/UTC"}, "time_zone"}, {object{"time_zone": "Europe/"}, "time_zone"}, {object{"time_zone": "CEST"}, "time_zone"},
		{object{"weekly": hours("9:00", "17:00")}, "weekly.monday[0].from"}, {object{"weekly": hours("09:00", "24:01")}, "weekly.monday[0].to"},
		{object{"weekly": hours("24:00", "24:00")}, "weekly.monday[0].to"}, {object{"weekly": hours("17:00", "09:00")}, "weekly.monday[0].to"}, {object{"weekly": hours("09:00", "09:10")}, "weekly.monday[0]"},
		{object{"weekly": hours("09:60", "10:00")}, "weekly.monday[0].from"}, {object{"weekly": object{"funday": []object{}}}, "weekly.funday"},
		{object{"weekly": object{"friday": []object{{"from": "13:00", "to": "17:00"}, {"from": "09:00", "to": "13:01"}}}}, "weekly.friday"},
		{object{"slot_minutes": 4}, "slot_minutes"}, {object{"slot_minutes": 481}, "slot_minutes"}, {object{"buffer_minutes": -1}, "buffer_minutes"},
		{object{"lead_minutes": -1}, "lead_minutes"}, {object{"horizon_days": 0}, "horizon_days"}, {object{"horizon_days": 731}, "horizon_days"},
	} {
		a := w.call(w.token, "PUT", "/v1/availability", c.set)
		faults, _ := a.at("errors").([]any)
		if a.status != 400 || len(faults) == 0 || faults[0].(object)["field"] != c.field {
			t.Errorf("%v: %d %s, want a fault of %s", c.set, a.status, a.raw, c.field)
		}
	}
	if after := w.rows(); after != before {
		t.Errorf("refused, and something is left: %s, before %s", after, before)
	}
	w.refused(w.call("", "PUT", "/v1/availability", object{}), 401, "unauthorized")
}

// Case B2: what is listed, and that it books.
func TestSlotsAcrossClockChanges(t *testing.T) {
	w := setup(t)
	year := day(0).Year()
	for !within(year) {
		year++
	}
	week := object{}
	for _, d := range []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"} {
		week[d] = []object{{"from": "09:00", "to": "17:00"}}
	}
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe"} {
		w.must(w.token, "PUT", "/v1/availability", object{"time_zone": zone, "weekly": week, "horizon_days": 730})
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for at := time.Date(year, 1, 1, 0, 0, 0, 0, loc); at.Year() == year; {
			_, change := at.ZoneBounds()
			if change.IsZero() || change.In(loc).Year() != year {
				change = at.AddDate(1, 0, 0) // China has none
			}
			for _, days := range []int{-2, 0, 1} {
				date := change.In(loc).AddDate(0, 0, days)
				want := time.Date(date.Year(), date.Month(), date.Day(), 9, 0, 0, 0, loc).UTC().Format(time.RFC3339)
				got := w.slots("?from=" + date.Format(time.DateOnly) + "&to=" + date.Format(time.DateOnly))
				if len(got) != 16 || got[0] != want {
					t.Errorf("%s %s: %v, want 16 from %s", zone, date.Format(time.DateOnly), got, want)
					continue
				}
				w.exec(`DELETE FROM bookings`)
				a := w.call("", "POST", create, object{"start": got[0], "name": "x", "email": "x@example.test"})
				if a.status != 201 || a.text("booking.start") != want || !strings.Contains(a.text("booking.when"), ", 09:00–09:30 "+zone+" (UTC") {
					t.Errorf("%s: %d %s", want, a.status, a.raw)
				}
			}
			at = change.In(loc)
		}
	}
}

// within: all changes of a year are at least two days ahead.
func within(year int) bool { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).After(day(2)) }

func TestSlotsRange(t *testing.T) {
	w := setup(t)
	w.open(object{"slot_minutes": 60})
	if got := w.slots(""); len(got) != 14*24 {
		t.Errorf("%d slots in two weeks", len(got))
	}
	if got := w.slots("?from=" + day(3).Format(time.DateOnly) + "&to=" + day(4).Format(time.DateOnly)); len(got) != 48 || got[0] != day(3).Format(time.RFC3339) {
		t.Errorf("two days: %v", got)
	}
	if got := w.slots("?from=" + day(3).Add(time.Minute).Format(time.RFC3339) + "&to=" + day(3).Add(2*time.Hour).Format(time.RFC3339)); len(got) != 1 {
		t.Errorf("one hour: %v", got)
	}
	if got := w.slots("?from=" + day(-9).Format(time.DateOnly) + "&to=" + day(-1).Format(time.DateOnly)); len(got) != 0 {
		t.Errorf("the past: %v", got)
	}
	w.open(object{"slot_minutes": 60, "horizon_days": 3, "lead_minutes": 24 * 60})
	if got := w.slots(""); len(got) != 48 {
		t.Errorf("%d slots between lead time and horizon: %v", len(got), got)
	}
	for _, q := range []string{"?from=junk", "?from=2027-02-30", "?to=2027-13-01", "?from=" + day(2).Format(time.DateOnly) + "&to=" + day(1).Format(time.DateOnly), "?to=" + day(70).Format(time.DateOnly), "?duration_min=4", "?from=99999-01-01"} {
		if a := w.call("", "GET", create+"/slots"+q, nil); a.status != 400 {
			t.Errorf("%s: %d %s", q, a.status, a.raw)
		}
	}
	w.refused(w.call("", "GET", "/v1/public/nobody/bookings/slots", nil), 404, "not_found")
}

// What is listed can be booked, and nothing else can.
func TestListedIsBookable(t *testing.T) {
	w := setup(t)
	random := rand.New(rand.NewPCG(1, 2))
	hours := func(from, to string) []object { return []object{{"from": from, "to": to}} }
	week := object{}
	for _, d := range []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"} {
		week[d] = append(hours("08:10", "10:00"), hours("13:00", "15:30")...)
	}
	for _, c := range []object{
		{"slot_minutes": 30, "buffer_minutes": 0}, {"slot_minutes": 20, "buffer_minutes": 10}, {"slot_minutes": 45, "buffer_minutes": 25, "time_zone": "Asia/Kolkata"},
	} {
		w.exec(`DELETE FROM bookings`)
		w.exec(`DELETE FROM rate_limits`)
		w.open(with(c, object{"weekly": week}))
		span := "from=" + day(5).Format(time.RFC3339) + "&to=" + day(6).Format(time.RFC3339)
		for n := 0; ; n++ {
			duration := []int{0, 20, 45, 60}[random.IntN(4)]
			query := "?" + span
			more := object{}
			if duration > 0 {
				query += fmt.Sprintf("&duration_min=%d", duration)
				more["duration_min"] = duration
			}
			free := w.slots(query)
			if n%4 == 0 {
				listed := map[string]bool{}
				for _, s := range free {
					listed[s] = true
				}
				before := w.rows()
				for s := day(5); s.Before(day(6)); s = s.Add(5 * time.Minute) {
					if start := s.Format(time.RFC3339); !listed[start] {
						if a := w.call("", "POST", create, with(request(s), more)); a.status != 409 && a.status != 422 {
							t.Errorf("%v, %d min at %s is not listed: %d %s", c, duration, start, a.status, a.raw)
						}
					}
				}
				if after := w.rows(); after != before {
					t.Errorf("refused, and something is left: %s, before %s", after, before)
				}
			}
			if len(free) == 0 {
				if n < 4 {
					t.Errorf("%v: full after %d", c, n)
				}
				break
			}
			start := free[random.IntN(len(free))]
			if a := w.call("", "POST", create, with(request(time.Time{}), with(more, object{"start": start}))); a.status != 201 {
				t.Fatalf("%v, %d min at %s is listed: %d %s", c, duration, start, a.status, a.raw)
			}
		}
	}
}

func TestCreate(t *testing.T) {
	w := setup(t)
	w.open(nil)
	start := day(3).Add(9 * time.Hour)
	a := w.book(start, object{"name": " Lee,\r\nBcc: x@y.test \"Sam\" ", "topic": " one\r\ntwo\x07 "})
	id, token := a.text("booking.id"), a.text("manage_token")
	if a.status != 201 || a.text("booking.start") != start.Format(time.RFC3339) || a.text("booking.end") != start.Add(30*time.Minute).Format(time.RFC3339) ||
		a.at("booking.duration_min") != 30.0 || a.text("booking.state") != "confirmed" || a.at("booking.sequence") != 0.0 ||
		a.text("booking.name") != `Lee, Bcc: x@y.test "Sam"` || a.text("booking.topic") != "one\ntwo" ||
		a.text("notification.state") != "sending" || a.at("notification.job_id") != nil || a.text("sentence") != task.Say(task.BookingMail, task.Pending) ||
		a.at("owner_notification") != nil || len(token) != 43 {
		t.Errorf("%s", a.raw)
	}
	if want := publicURL + "/@me/bookings/" + id + "?token=" + token; a.text("manage_url") != want {
		t.Errorf("%s, want %s", a.text("manage_url"), want)
	}
	if want := publicURL + "/v1/public/me/bookings/" + id + ".ics?token=" + token; a.text("ics_url") != want {
		t.Errorf("%s, want %s", a.text("ics_url"), want)
	}
	// the token is kept nowhere
	for _, table := range []string{"bookings", "events", "idempotency_keys"} {
		if n := w.count(`SELECT count(*) FROM ` + table + ` t WHERE t::text LIKE '%` + token + `%'`); n != 0 {
			t.Errorf("%s holds the token", table)
		}
	}
	var data string
	if err := w.db.QueryRow(t.Context(), `SELECT data::text FROM events WHERE type = 'booking.created' AND subject = $1`, id).Scan(&data); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"booking_id": "` + id, `"sequence": 0`, `"by": "visitor"`, `"starts_at"`, `"ends_at"`} {
		if !strings.Contains(data, want) {
			t.Errorf("%s lacks %s", data, want)
		}
	}

	// a repetition answers the same
	again := with(request(start.Add(2*time.Hour)), object{})
	first := w.must("", "POST", create, again, "Idempotency-Key", "k")
	second := w.must("", "POST", create, again, "Idempotency-Key", "k")
	if first.raw != second.raw || second.status != 201 || w.count(`SELECT count(*) FROM bookings`) != 2 {
		t.Errorf("%s\n%s", first.raw, second.raw)
	}
	if n := w.count(`SELECT count(*) FROM idempotency_keys k WHERE k::text LIKE '%' || $1 || '%'`, first.text("manage_token")); n != 0 {
		t.Error("the key holds the token")
	}
	w.refused(w.call("", "POST", create, request(start.Add(3*time.Hour)), "Idempotency-Key", "k"), 422, "idempotency_key_reused")
	// and says how it stands by then
	w.must("", "POST", "/v1/bookings/"+first.text("booking.id")+"/cancel", object{"manage_token": first.text("manage_token")})
	if third := w.must("", "POST", create, again, "Idempotency-Key", "k"); third.text("booking.state") != "cancelled" {
		t.Errorf("%s", third.raw)
	}
}

// R13: what is refused leaves nothing.
func TestRefusedLeavesNothing(t *testing.T) {
	w := setup(t)
	w.open(object{"lead_minutes": 60, "horizon_days": 30})
	good := day(3).Add(9 * time.Hour)
	w.book(good, nil)
	free := request(good.Add(time.Hour))
	before := w.rows()
	for _, c := range []struct {
		body   object
		status int
		code   string
	}{
		{request(good), 409, "slot_taken"},
		{with(request(good.Add(-30*time.Minute)), object{"duration_min": 60}), 409, "slot_taken"},
		{request(good.Add(10 * time.Minute)), 422, "slot_not_offered"},
		{request(good.Add(time.Second)), 422, "slot_not_offered"},
		{request(day(0)), 422, "slot_not_offered"},
		{request(day(31)), 422, "slot_not_offered"},
		{request(time.Now().UTC().Truncate(30 * time.Minute).Add(30 * time.Minute)), 422, "slot_not_offered"},
		{with(free, object{"start": "0001-01-01T00:00:00Z"}), 422, "slot_not_offered"},
		{with(free, object{"start": "9999-12-31T23:59:59Z"}), 422, "slot_not_offered"},
		{with(free, object{"start": "tomorrow"}), 400, "invalid_format"},
		{with(free, object{"duration_min": 4}), 400, "too_small"},
		{with(free, object{"duration_min": 481}), 400, "too_large"},
		{with(free, object{"name": " \t "}), 400, "invalid_request"},
		{with(free, object{"email": "x@evil.test> <y"}), 400, "invalid_request"},
		{with(free, object{"email": "you@a.test>, <evil@b.test"}), 400, "invalid_request"},
		{with(free, object{"email": "Eve <x@b.test>"}), 400, "invalid_request"},
		{with(free, object{"topic": strings.Repeat("x", 2001)}), 400, "too_long"},
		{with(free, object{"website": "http://x"}), 422, "website_filled"},
		{with(free, object{"zone": "x"}), 400, "unknown_field"},
	} {
		for _, headers := range [][]string{nil, {"Idempotency-Key", uuid.NewString()}} {
			a := w.call("", "POST", create, c.body, headers...)
			if a.status != c.status || a.text("code") != c.code {
				t.Errorf("%v: %d %s, want %d %s", c.body, a.status, a.raw, c.status, c.code)
			}
		}
	}
	w.refused(w.call("", "POST", "/v1/public/nobody/bookings", free), 404, "not_found")
	if after := w.rows(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
	if n := w.count(`SELECT count(*) FROM rate_limits WHERE bucket = 'bookings' AND tat > now() + interval '31 seconds'`); n != 0 {
		t.Error("refused bookings count towards the limit")
	}
}

// together calls f n times at once and counts the answers.
func (w *world) together(n int, f func(i int) answer) map[string]int {
	w.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	begin := make(chan struct{})
	found := map[string]int{}
	for i := range n {
		all.Go(func() {
			<-begin
			a := f(i)
			mu.Lock()
			defer mu.Unlock()
			found[fmt.Sprint(a.status, " ", a.text("code"))]++
		})
	}
	close(begin)
	all.Wait()
	return found
}

func (w *world) want(got map[string]int, want map[string]int) {
	w.Helper()
	if !maps.Equal(got, want) {
		w.Errorf("%v, want %v", got, want)
	}
}

var oneOfHundred = map[string]int{"201 ": 1, "409 slot_taken": 99}

func TestOneSlotForHundred(t *testing.T) {
	w := setupAlone(t)
	w.open(object{"buffer_minutes": 10})
	w.want(w.together(100, func(int) answer { return w.call("", "POST", create, request(day(3))) }), oneOfHundred)
	// different intervals, all of which hold the same half hour
	noon := day(4).Add(12 * time.Hour)
	w.want(w.together(100, func(i int) answer {
		early := i % 8
		return w.call("", "POST", create, with(request(noon.Add(-time.Duration(early)*30*time.Minute)), object{"duration_min": 30*early + 30 + 7*(i/8)}))
	}), oneOfHundred)
	if n := w.count(`SELECT count(*) FROM bookings`); n != 2 {
		t.Errorf("%d bookings", n)
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type LIKE 'booking.%'`); n != 2 {
		t.Errorf("%d events", n)
	}
}

// What overlaps is refused by the database itself, whoever writes it.
func TestDatabaseRefusesOverlap(t *testing.T) {
	w := setup(t)
	insert := func(from, to time.Time, state string) error {
		_, err := w.db.Exec(t.Context(), `
			INSERT INTO bookings (id, owner_id, starts_at, ends_at, busy, time_zone, name, email, token_hash, mail_event, state, cancelled_at, cancelled_by)
			VALUES ($1, $2, $3, $4, tstzrange($3, $4), 'UTC', 'x', 'x@example.test', '', $1, $5, CASE $5 WHEN 'cancelled' THEN now() END, CASE $5 WHEN 'cancelled' THEN 'owner' END)`,
			uuid.New(), w.me.ID, from, to, state)
		return err
	}
	if err := insert(day(1), day(1).Add(time.Hour), "confirmed"); err != nil {
		t.Fatal(err)
	}
	if err := insert(day(1).Add(59*time.Minute), day(2), "confirmed"); !pg.Violates(err, "bookings_no_overlap") {
		t.Errorf("overlapping: %v", err)
	}
	if err := insert(day(1).Add(time.Hour), day(2), "confirmed"); err != nil {
		t.Errorf("adjoining: %v", err)
	}
	if err := insert(day(1), day(2), "cancelled"); err != nil {
		t.Errorf("cancelled: %v", err)
	}
}

// visitor is somebody who redeemed a code.
func (w *world) visitor(codes ...uuid.UUID) (session string) {
	w.Helper()
	if err := w.db.InTx(w.Context(), func(tx *pg.Tx) (err error) {
		for _, code := range codes {
			if session, _, _, err = auth.Admit(w.Context(), tx, session, code); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	return session
}

func (w *world) code(quota any) uuid.UUID {
	w.Helper()
	id := uuid.New()
	w.exec(`INSERT INTO codes (id, owner_id, code_hash, hint, booking_quota) VALUES ($1, $2, $3, 'XXXX', $4)`, id, w.me.ID, id[:], quota)
	return id
}

func TestQuota(t *testing.T) {
	w := setupAlone(t)
	w.open(nil)
	three := w.code(3)
	sessions := make([]string, 5)
	for i := range sessions {
		sessions[i] = w.visitor(three)
	}
	w.must(sessions[0], "POST", create, request(day(2)))
	last := w.must(sessions[1], "POST", create, request(day(2).Add(time.Hour)))
	if last.at("booking.code_id") != nil {
		t.Errorf("a visitor is told the code's id: %s", last.raw)
	}
	// the last of the quota, by a hundred who want different times
	w.want(w.together(100, func(i int) answer {
		return w.call(sessions[i%5], "POST", create, request(day(3).Add(time.Duration(i)*30*time.Minute)))
	}), map[string]int{"201 ": 1, "409 quota_used_up": 99})
	if n := w.count(`SELECT count(*) FROM bookings WHERE code_id = $1`, three); n != 3 {
		t.Errorf("%d bookings of the code", n)
	}
	// a cancelled one counts no more
	w.must("", "POST", "/v1/bookings/"+last.text("booking.id")+"/cancel", object{"manage_token": last.text("manage_token")})
	w.must(sessions[2], "POST", create, request(day(8)))
	w.refused(w.call(sessions[2], "POST", create, request(day(9))), 409, "quota_used_up")

	// of several codes, the first that has some left
	one, unlimited := w.code(1), w.code(nil)
	both := w.visitor(one, three)
	a := w.must(both, "POST", create, request(day(10)))
	if n := w.count(`SELECT count(*) FROM bookings WHERE id = $1 AND code_id = $2`, a.text("booking.id"), one); n != 1 {
		t.Error("it counts for another code")
	}
	w.refused(w.call(both, "POST", create, request(day(11))), 409, "quota_used_up")
	w.must(w.visitor(unlimited, one), "POST", create, request(day(11)))
	// one that has ended is none
	w.exec(`UPDATE codes SET revoked_at = now() WHERE id <> $1`, one)
	w.refused(w.call(both, "POST", create, request(day(12))), 409, "quota_used_up")
	w.exec(`UPDATE codes SET revoked_at = now()`)
	w.refused(w.call(both, "POST", create, request(day(12))), 401, "visitor_session_expired")
	w.must("", "POST", create, request(day(12)))
	if n := w.count(`SELECT count(*) FROM bookings WHERE code_id IS NULL`); n != 1 {
		t.Errorf("%d bookings without a code", n)
	}
}

// Where booking needs a code, none of its quota can be gone around.
func TestRequiresCode(t *testing.T) {
	w := setup(t)
	w.open(object{"requires_code": true})
	one := w.code(1)
	session, other := w.visitor(one), w.visitor(w.code(0))
	strangers := uuid.New()
	w.exec(`INSERT INTO codes (id, owner_id, code_hash, hint) SELECT $1, id, $2, 'XXXX' FROM owners WHERE handle = 'other'`, strangers, strangers[:])
	before := w.rows()
	for name, token := range map[string]string{"nobody": "", "another owner's visitor": w.visitor(strangers), "another owner": w.other} {
		a := w.call(token, "POST", create, request(day(3)))
		if w.refused(a, 403, "code_required"); !strings.Contains(a.text("detail"), "Redeem") {
			t.Errorf("%s: %s", name, a.raw)
		}
	}
	w.refused(w.call(other, "POST", create, request(day(3))), 409, "quota_used_up")
	if after := w.rows(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
	// everybody sees what is free, and that a code is needed
	if s := w.must("", "GET", create+"/slots", nil); s.at("requires_code") != true || len(s.at("slots").([]any)) == 0 {
		t.Errorf("%.300s", s.raw)
	}
	a := w.must(session, "POST", create, request(day(3)))
	w.refused(w.call(session, "POST", create, request(day(4))), 409, "quota_used_up")
	w.refused(w.call("", "POST", create, request(day(4))), 403, "code_required")
	// the owner needs none, and who has a booking may manage it
	w.must(w.token, "POST", create, request(day(5)))
	w.must("", "POST", "/v1/bookings/"+a.text("booking.id")+"/reschedule", object{"manage_token": a.text("manage_token"), "start": day(6)})
	// a code that ends while it is used
	w.exec(`UPDATE codes SET revoked_at = now() WHERE id = $1`, one)
	w.refused(w.call("", "POST", create, request(day(7)), "Cookie", "sm_visitor="+session), 403, "code_required")
	if set := w.must(w.token, "PUT", "/v1/availability", object{"requires_code": nil}); set.at("requires_code") != false {
		t.Errorf("%s", set.raw)
	}
	w.must("", "POST", create, request(day(7)))
}

func TestMaxDuration(t *testing.T) {
	w := setup(t)
	w.open(object{"max_duration_min": 60})
	long := with(request(day(3)), object{"duration_min": 90})
	before := w.rows()
	w.refused(w.call("", "POST", create, long), 400, "invalid_request")
	w.refused(w.call("", "GET", create+"/slots?duration_min=90", nil), 400, "invalid_request")
	w.refused(w.call(w.token, "PUT", "/v1/availability", object{"slot_minutes": 90}), 400, "invalid_request")
	if after := w.rows(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
	if s := w.must("", "GET", create+"/slots?duration_min=60", nil); s.at("max_duration_min") != 60.0 {
		t.Errorf("%.300s", s.raw)
	}
	a := w.book(day(3), object{"duration_min": 60})
	move := "/v1/bookings/" + a.text("booking.id") + "/reschedule"
	w.refused(w.call("", "POST", move, object{"manage_token": a.text("manage_token"), "start": day(4), "duration_min": 90}), 400, "invalid_request")
	w.must(w.token, "POST", move, object{"start": day(4), "duration_min": 90})
	// the length that it has may be kept
	w.must("", "POST", move, object{"manage_token": a.text("manage_token"), "start": day(5)})
	if set := w.must(w.token, "PUT", "/v1/availability", object{"max_duration_min": nil}); set.at("max_duration_min") != 480.0 {
		t.Errorf("%s", set.raw)
	}
	w.book(day(6), object{"duration_min": 480})
}

// The time is said in the visitor's zone too, if they name one.
func TestVisitorsZone(t *testing.T) {
	w := setup(t)
	w.open(nil)
	a := w.book(day(3), object{"time_zone": "Asia/Tokyo"})
	if a.text("booking.visitor_time_zone") != "Asia/Tokyo" || !strings.Contains(a.text("booking.visitor_when"), "09:00–09:30 Asia/Tokyo (UTC+09:00)") {
		t.Errorf("%s", a.raw)
	}
	if b := w.book(day(4), object{"time_zone": "UTC"}); b.text("booking.visitor_time_zone") != "UTC" || b.at("booking.visitor_when") != nil {
		t.Errorf("%s", b.raw)
	}
	if b := w.book(day(5), nil); b.at("booking.visitor_time_zone") != nil || b.at("booking.visitor_when") != nil {
		t.Errorf("%s", b.raw)
	}
	before := w.rows()
	for _, zone := range []string{"Tokyo", "../x", "Local"} {
		w.refused(w.call("", "POST", create, with(request(day(6)), object{"time_zone": zone})), 400, "invalid_request")
	}
	if after := w.rows(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

func TestLimitOfAnAddress(t *testing.T) {
	w := setupAlone(t)
	w.open(nil)
	got := w.together(125, func(i int) answer {
		return w.call("", "POST", create, request(day(2).Add(time.Duration(i)*30*time.Minute)))
	})
	w.want(got, map[string]int{"201 ": 120, "429 rate_limited": 5})
	if n := w.count(`SELECT count(*) FROM bookings`); n != 120 {
		t.Errorf("%d bookings", n)
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'booking.created'`); n != 120 {
		t.Errorf("%d events", n)
	}
}

func TestWhoMayManage(t *testing.T) {
	w := setup(t)
	w.open(nil)
	mine := w.book(day(3), nil)
	theirs := w.book(day(4), nil)
	id, token := mine.text("booking.id"), mine.text("manage_token")
	before := w.rows()
	move := object{"start": day(5).Format(time.RFC3339)}
	for _, c := range []struct {
		who, caller, id, token string
		status                 int
		code                   string
	}{
		{"nobody", "", id, "", 401, "unauthorized"},
		{"a wrong token", "", id, "x", 404, "not_found"},
		{"another booking's token", "", id, theirs.text("manage_token"), 404, "not_found"},
		{"a token with more", "", id, token + "x", 404, "not_found"},
		{"no such booking", "", uuid.NewString(), token, 404, "not_found"},
		{"junk", "", "junk", token, 404, "not_found"},
		{"another owner", w.other, id, "", 404, "not_found"},
		{"another owner with a wrong token", w.other, id, "x", 404, "not_found"},
		{"the owner with a wrong token", w.token, id, "x", 404, "not_found"},
		{"a visitor with a code", w.visitor(w.code(nil)), id, "", 403, "forbidden"},
	} {
		with := func(body object) object {
			if c.token != "" {
				body["manage_token"] = c.token
			}
			return body
		}
		query := ""
		if c.token != "" {
			query = "?manage_token=" + url.QueryEscape(c.token)
		}
		for what, a := range map[string]answer{
			"get":        w.call(c.caller, "GET", "/v1/bookings/"+c.id+query, nil),
			"cancel":     w.call(c.caller, "POST", "/v1/bookings/"+c.id+"/cancel", with(object{})),
			"reschedule": w.call(c.caller, "POST", "/v1/bookings/"+c.id+"/reschedule", with(maps.Clone(move))),
			"file":       w.call(c.caller, "GET", create+"/"+c.id+".ics"+strings.Replace(query, "manage_token", "token", 1), nil),
		} {
			if a.status != c.status || a.text("code") != c.code || strings.Contains(a.raw, "vera@") || (c.status == 401 || c.status == 403) != strings.Contains(a.text("detail"), "manage_token") {
				t.Errorf("%s by %s: %d %s", what, c.who, a.status, a.raw)
			}
		}
	}
	if after := w.rows(); after != before {
		t.Errorf("%s, before %s", after, before)
	}

	seen := w.must("", "GET", "/v1/bookings/"+id+"?manage_token="+token, nil)
	if seen.text("booking.email") != "vera@example.test" || seen.at("notification.job_id") != nil || seen.at("owner_notification") != nil {
		t.Errorf("the visitor: %s", seen.raw)
	}
	owner := w.must(w.token, "GET", "/v1/bookings/"+id, nil)
	if receipt := owner.text("notification.job_id"); !strings.HasSuffix(receipt, ":booking.mail") || !strings.HasSuffix(owner.text("owner_notification.job_id"), ":booking.owner_mail") ||
		owner.text("owner_notification.sentence") != task.Say(task.BookingOwnerMail, task.Pending) {
		t.Errorf("the owner: %s", owner.raw)
	}
	// the owner who follows the visitor's link acts as the visitor
	if a := w.must(w.token, "POST", "/v1/bookings/"+id+"/cancel", object{"manage_token": token}); a.text("booking.cancelled_by") != "visitor" {
		t.Errorf("%s", a.raw)
	}
}

func TestReschedule(t *testing.T) {
	w := setup(t)
	w.open(object{"buffer_minutes": 15, "lead_minutes": 60})
	a := w.book(day(3).Add(9*time.Hour), object{"duration_min": 60})
	w.book(day(3).Add(12*time.Hour), nil)
	path, token := "/v1/bookings/"+a.text("booking.id")+"/reschedule", a.text("manage_token")
	move := func(start time.Time, more object) object {
		return with(object{"start": start.Format(time.RFC3339), "manage_token": token}, more)
	}
	before := w.rows()
	for _, c := range []struct {
		body   object
		status int
		code   string
	}{
		{move(day(3).Add(12*time.Hour), nil), 409, "slot_taken"},
		{move(day(3).Add(11*time.Hour), nil), 409, "slot_taken"}, // by its buffer
		{move(day(3).Add(11*time.Hour+30*time.Minute), object{"duration_min": 45}), 409, "slot_taken"},
		{move(day(3).Add(10*time.Minute), nil), 422, "slot_not_offered"},
		{move(time.Now().UTC().Truncate(30*time.Minute).Add(30*time.Minute), nil), 422, "slot_not_offered"},
		{move(day(-3), nil), 422, "slot_not_offered"},
		{move(day(400), nil), 422, "slot_not_offered"},
		{move(day(3), object{"duration_min": 3}), 400, "too_small"},
	} {
		w.refused(w.call("", "POST", path, c.body), c.status, c.code)
	}
	if after := w.rows(); after != before {
		t.Errorf("a move that failed changed something: %s, before %s", after, before)
	}
	// its own time is not in its way
	moved := w.must("", "POST", path, move(day(3).Add(9*time.Hour+30*time.Minute), nil))
	if moved.text("booking.id") != a.text("booking.id") || moved.at("booking.sequence") != 1.0 || moved.at("booking.duration_min") != 60.0 ||
		moved.text("booking.start") != day(3).Add(9*time.Hour+30*time.Minute).Format(time.RFC3339) || moved.text("notification.state") != "sending" {
		t.Errorf("%s", moved.raw)
	}
	// where it was is free again
	w.book(day(3).Add(8*time.Hour+30*time.Minute), nil)
	// to where it is already changes nothing
	if same := w.must("", "POST", path, move(day(3).Add(9*time.Hour+30*time.Minute), nil)); same.at("booking.sequence") != 1.0 {
		t.Errorf("%s", same.raw)
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'booking.rescheduled' AND data->>'by' = 'visitor' AND data->>'was_starts_at' IS NOT NULL`); n != 1 {
		t.Errorf("%d events", n)
	}
	// the lead time and the horizon are for visitors
	soon := time.Now().UTC().Truncate(30 * time.Minute).Add(30 * time.Minute)
	byOwner := w.must(w.token, "POST", path, object{"start": soon.Format(time.RFC3339), "duration_min": 30})
	if byOwner.at("booking.sequence") != 2.0 || byOwner.at("booking.duration_min") != 30.0 {
		t.Errorf("%s", byOwner.raw)
	}
	w.must(w.token, "POST", path, object{"start": day(500).Format(time.RFC3339)})
	w.refused(w.call(w.token, "POST", path, object{"start": day(-1).Format(time.RFC3339)}), 422, "slot_not_offered")
	w.refused(w.call(w.token, "POST", path, object{"start": day(3).Add(time.Minute).Format(time.RFC3339)}), 422, "slot_not_offered")

	// what has begun is the visitor's to change no more
	w.exec(`UPDATE bookings SET starts_at = now() - interval '1 minute', ends_at = now() + interval '1 minute', busy = tstzrange(now() - interval '1 minute', now()) WHERE id = $1`, a.text("booking.id"))
	w.refused(w.call("", "POST", path, move(day(6), nil)), 409, "booking_begun")
	w.refused(w.call("", "POST", strings.Replace(path, "reschedule", "cancel", 1), object{"manage_token": token}), 409, "booking_begun")
	w.must(w.token, "POST", path, object{"start": day(6).Format(time.RFC3339)})

	w.must(w.token, "POST", strings.Replace(path, "reschedule", "cancel", 1), object{})
	w.refused(w.call(w.token, "POST", path, object{"start": day(7).Format(time.RFC3339)}), 409, "booking_cancelled")
	w.refused(w.call("", "POST", path, move(day(7), nil)), 409, "booking_cancelled")
}

// A visitor moves one booking 20 times within an hour; the owner as often as they
// like.
func TestLimitOfMoves(t *testing.T) {
	w := setup(t)
	w.open(nil)
	a, other := w.book(day(3), nil), w.book(day(4), nil)
	move := func(caller string, of answer, i int) answer {
		body := object{"start": day(5).Add(time.Duration(i%2) * time.Hour)}
		if caller == "" {
			body["manage_token"] = of.text("manage_token")
		}
		return w.call(caller, "POST", "/v1/bookings/"+of.text("booking.id")+"/reschedule", body)
	}
	for i := range 20 {
		if got := move("", a, i); got.status != 200 {
			t.Fatalf("move %d: %d %s", i, got.status, got.raw)
		}
	}
	before := w.rows()
	got := move("", a, 20)
	if w.refused(got, 429, "rate_limited"); got.header.Get("Retry-After") == "" || !strings.Contains(got.text("detail"), "Try again in") {
		t.Errorf("%v %s", got.header, got.raw)
	}
	if after := w.rows(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
	// where it is already, it isn't moved
	if got := move("", a, 19); got.status != 200 {
		t.Errorf("%d %s", got.status, got.raw)
	}
	if got := move(w.token, a, 20); got.status != 200 {
		t.Errorf("the owner: %d %s", got.status, got.raw)
	}
	w.must("", "POST", "/v1/bookings/"+other.text("booking.id")+"/reschedule", object{"manage_token": other.text("manage_token"), "start": day(6)})
}

func TestMovesTogether(t *testing.T) {
	w := setupAlone(t)
	w.open(nil)
	const n = 30
	var made [n]answer
	for i := range made {
		made[i] = w.book(day(2).Add(time.Duration(i)*30*time.Minute), nil)
	}
	move := func(a answer, to time.Time) answer {
		return w.call("", "POST", "/v1/bookings/"+a.text("booking.id")+"/reschedule", object{"start": to.Format(time.RFC3339), "manage_token": a.text("manage_token")})
	}
	// all to one slot
	w.want(w.together(n, func(i int) answer { return move(made[i], day(5)) }), map[string]int{"200 ": 1, "409 slot_taken": n - 1})
	// and while others book it
	got := w.together(n, func(i int) answer {
		if i%2 == 0 {
			return w.call("", "POST", create, request(day(6)))
		}
		return move(made[i], day(6))
	})
	if got["200 "]+got["201 "] != 1 || got["409 slot_taken"] != n-1 {
		t.Errorf("%v", got)
	}
	// a hundred times the same booking: one cancels, whatever the moves do
	one := w.book(day(8), nil)
	cancel := "/v1/bookings/" + one.text("booking.id") + "/cancel"
	got = w.together(n, func(i int) answer {
		if i%3 == 0 {
			return w.call("", "POST", cancel, object{"manage_token": one.text("manage_token")})
		}
		return move(one, day(9).Add(time.Duration(i)*time.Hour))
	})
	if got["200 "]+got["409 booking_cancelled"]+got["429 rate_limited"] != n {
		t.Errorf("%v", got)
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'booking.cancelled'`); n != 1 {
		t.Errorf("cancelled %d times", n)
	}
	// each change has a number of its own, without a gap
	if n := w.count(`SELECT count(*) FROM bookings b WHERE sequence + 1 <> (SELECT count(DISTINCT (data->>'sequence')::int) FROM events WHERE subject = b.id::text AND type LIKE 'booking.%')`); n != 0 {
		t.Errorf("%d bookings whose numbers have gaps", n)
	}
}

func TestCancel(t *testing.T) {
	w := setup(t)
	w.open(nil)
	a := w.book(day(3), nil)
	path, token := "/v1/bookings/"+a.text("booking.id")+"/cancel", object{"manage_token": a.text("manage_token")}
	w.want(w.together(20, func(int) answer { return w.call("", "POST", path, token) }), map[string]int{"200 ": 20})
	got := w.must(w.token, "POST", path, object{})
	if got.text("booking.state") != "cancelled" || got.text("booking.cancelled_by") != "visitor" || got.at("booking.sequence") != 1.0 || got.at("booking.cancelled_at") == nil {
		t.Errorf("%s", got.raw)
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'booking.cancelled'`); n != 1 {
		t.Errorf("%d events", n)
	}
	w.book(day(3), nil)
}

// What an answer says of a mail is what its task says.
func TestNotification(t *testing.T) {
	w := setup(t)
	w.open(nil)
	a := w.book(day(3), nil)
	id := a.text("booking.id")
	get := func() (visitor, owner answer) {
		return w.must("", "GET", "/v1/bookings/"+id+"?manage_token="+a.text("manage_token"), nil), w.must(w.token, "GET", "/v1/bookings/"+id, nil)
	}
	_, owner := get()
	receipt, err := task.ParseID(owner.text("notification.job_id"))
	if err != nil {
		t.Fatal(err)
	}
	w.exec(`INSERT INTO tasks (event_id, subscriber, owner_id, subject, state) VALUES ($1, 'booking.mail', $2, $3, 'pending'), ($1, 'booking.owner_mail', $2, $3, 'discarded')`, receipt.Event, w.me.ID, id)
	for _, c := range []struct {
		state task.State
		want  string
	}{{task.Running, "sending"}, {task.Completed, "sent"}, {task.Discarded, "failed"}, {task.Cancelled, "failed"}} {
		w.exec(`UPDATE tasks SET state = $2, finished_at = now() WHERE event_id = $1 AND subscriber = 'booking.mail'`, receipt.Event, c.state)
		visitor, owner := get()
		for who, a := range map[string]answer{"visitor": visitor, "owner": owner} {
			sentence := a.text("sentence")
			if a.text("notification.state") != c.want || strings.Contains(sentence, "was sent") != (c.state == task.Completed) {
				t.Errorf("%s, to the %s: %s", c.state, who, a.raw)
			}
		}
		if owner.text("owner_notification.state") != "failed" {
			t.Errorf("%s", owner.raw)
		}
	}
	// for good, when the task is kept no longer
	w.exec(`DELETE FROM events`)
	for mail, state := range map[string]task.State{"sent": task.Completed, "failed": task.Discarded} {
		w.exec(`UPDATE tasks SET state = $1 WHERE subscriber = 'booking.mail'`, state)
		w.exec(`DELETE FROM tasks`)
		w.exec(`UPDATE bookings SET mail_state = $1`, mail)
		if _, owner := get(); owner.text("notification.state") != mail || owner.at("owner_notification") != nil || strings.Contains(owner.text("sentence"), "was sent") != (mail == "sent") {
			t.Errorf("%s: %s", mail, owner.raw)
		}
	}
}

func TestList(t *testing.T) {
	w := setup(t)
	w.open(nil)
	var ids []string
	for i := range 5 {
		ids = append(ids, w.book(day(2+i), nil).text("booking.id"))
	}
	w.must(w.token, "POST", "/v1/bookings/"+ids[2]+"/cancel", object{})
	list := func(query string) (found []string) {
		t.Helper()
		for cursor := ""; ; {
			a := w.must(w.token, "GET", "/v1/bookings?limit=2"+query+cursor, nil)
			for _, i := range a.at("items").([]any) {
				item := answer{body: i.(object)}
				found = append(found, item.text("booking.id"))
				if item.text("notification.state") != "sending" || !strings.HasSuffix(item.text("notification.job_id"), ":booking.mail") || item.text("sentence") == "" || item.text("owner_notification.state") != "sending" {
					t.Errorf("%v", item.body)
				}
			}
			if cursor = a.text("next_cursor"); cursor == "" {
				if a.at("total") != float64(len(found)) {
					t.Errorf("%s: total %v of %d", query, a.at("total"), len(found))
				}
				return found
			}
			cursor = "&cursor=" + cursor
		}
	}
	for query, want := range map[string][]string{
		"": ids, "&state=cancelled": ids[2:3], "&state=confirmed&from=" + day(3).Format(time.RFC3339): {ids[1], ids[3], ids[4]},
		"&from=" + day(3).Add(30*time.Minute).Format(time.RFC3339) + "&to=" + day(5).Format(time.RFC3339): ids[2:3],
	} {
		if got := list(query); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if a := w.must(w.other, "GET", "/v1/bookings", nil); a.at("total") != 0.0 {
		t.Errorf("another owner: %s", a.raw)
	}
	w.refused(w.call(w.token, "GET", "/v1/bookings?cursor=x", nil), 400, "bad_cursor")
	w.refused(w.call("", "GET", "/v1/bookings", nil), 401, "unauthorized")
}

func TestFile(t *testing.T) {
	w := setup(t)
	w.open(nil)
	a := w.book(day(3), nil)
	path := strings.TrimPrefix(a.text("ics_url"), publicURL)
	got := w.must("", "GET", path, nil)
	if got.header.Get("Content-Type") != "text/calendar; charset=utf-8" || !strings.Contains(got.header.Get("Content-Disposition"), "booking.ics") ||
		!strings.Contains(got.raw, "METHOD:PUBLISH\r\n") || !strings.Contains(got.raw, "UID:"+a.text("booking.id")+"\r\n") || !strings.Contains(got.raw, "DTSTART:"+day(3).Format("20060102T150405Z")+"\r\n") {
		t.Errorf("%v %s", got.header, got.raw)
	}
	if again := w.must("", "GET", path, nil); again.raw != got.raw || again.header.Get("ETag") != got.header.Get("ETag") {
		t.Errorf("%s\n%s", got.raw, again.raw)
	}
	if same := w.call("", "GET", path, nil, "If-None-Match", got.header.Get("ETag")); same.status != 304 || same.raw != "" {
		t.Errorf("%d %s", same.status, same.raw)
	}
	// the owner's holds no visitor's secret
	if owner := w.must(w.token, "GET", strings.Split(path, "?")[0], nil); strings.Contains(strings.ReplaceAll(owner.raw, "\r\n ", ""), a.text("manage_token")) {
		t.Errorf("%s", owner.raw)
	}
	for _, p := range []string{create + "/junk.ics?token=x", create + "/" + a.text("booking.id") + "?token=" + a.text("manage_token"), strings.Replace(path, "/me/", "/other/", 1), strings.Replace(path, "/me/", "/nobody/", 1)} {
		w.refused(w.call("", "GET", p, nil), 404, "not_found")
	}
	w.must(w.token, "POST", "/v1/bookings/"+a.text("booking.id")+"/cancel", object{})
	if gone := w.must("", "GET", path, nil, "If-None-Match", got.header.Get("ETag")); !strings.Contains(gone.raw, "STATUS:CANCELLED\r\n") || !strings.Contains(gone.raw, "SEQUENCE:1\r\n") {
		t.Errorf("%s", gone.raw)
	}
}

func TestFeed(t *testing.T) {
	w := setup(t)
	w.open(nil)
	w.refused(w.call(w.token, "DELETE", "/v1/calendar-feed", nil), 404, "not_found")
	first := w.must(w.token, "POST", "/v1/calendar-feed", nil, "Idempotency-Key", "k")
	path := strings.TrimPrefix(first.text("url"), publicURL)
	told := w.must(w.token, "GET", "/v1/availability", nil)
	if since, err := time.Parse(time.RFC3339, told.text("calendar_feed_since")); err != nil || time.Since(since) > time.Hour || strings.Contains(told.raw, strings.TrimSuffix(path[len("/v1/public/me/calendar/"):], ".ics")) {
		t.Errorf("%s", told.raw)
	}
	if other := w.must(w.other, "GET", "/v1/availability", nil); other.at("calendar_feed_since") != nil {
		t.Errorf("another owner's: %s", other.raw)
	}
	if first.status != 201 || !strings.HasPrefix(path, "/v1/public/me/calendar/") || w.must(w.token, "POST", "/v1/calendar-feed", nil, "Idempotency-Key", "k").raw != first.raw {
		t.Fatalf("%d %s", first.status, first.raw)
	}
	a, b := w.book(day(3), nil), w.book(day(2), nil)
	feed := w.must("", "GET", path, nil)
	if strings.Count(feed.raw, "BEGIN:VEVENT") != 2 || !strings.Contains(feed.raw, "METHOD:PUBLISH") || !strings.Contains(feed.raw, "REFRESH-INTERVAL") || strings.Index(feed.raw, b.text("booking.id")) > strings.Index(feed.raw, a.text("booking.id")) {
		t.Errorf("%s", feed.raw)
	}
	if again := w.must("", "GET", path, nil); again.raw != feed.raw {
		t.Errorf("%s\n%s", feed.raw, again.raw)
	}
	if same := w.call("", "GET", path, nil, "If-None-Match", feed.header.Get("ETag")); same.status != 304 {
		t.Errorf("%d", same.status)
	}
	// a mail that is sent changes no calendar
	w.exec(`UPDATE bookings SET mail_state = 'sent'`)
	if same := w.call("", "GET", path, nil, "If-None-Match", feed.header.Get("ETag")); same.status != 304 {
		t.Errorf("%d", same.status)
	}
	w.must(w.token, "POST", "/v1/bookings/"+a.text("booking.id")+"/cancel", object{})
	if less := w.call("", "GET", path, nil, "If-None-Match", feed.header.Get("ETag")); less.status != 200 || strings.Contains(less.raw, a.text("booking.id")) {
		t.Errorf("%d %s", less.status, less.raw)
	}
	for _, p := range []string{strings.Replace(path, "/me/", "/other/", 1), strings.Replace(path, "/me/", "/nobody/", 1), "/v1/public/me/calendar/x.ics", "/v1/public/me/calendar/.ics", strings.TrimSuffix(path, ".ics")} {
		wrong := w.call("", "GET", p, nil)
		w.refused(wrong, 404, "not_found")
		if wrong.text("detail") != "There is no such calendar feed." {
			t.Errorf("%s: %s", p, wrong.raw)
		}
	}
	second := w.must(w.token, "POST", "/v1/calendar-feed", nil)
	w.refused(w.call("", "GET", path, nil), 404, "not_found")
	if replayed := w.must(w.token, "POST", "/v1/calendar-feed", nil, "Idempotency-Key", "k"); replayed.at("url") != nil {
		t.Errorf("an address that was replaced is shown: %s", replayed.raw)
	}
	w.must(w.token, "DELETE", "/v1/calendar-feed", nil)
	w.refused(w.call("", "GET", strings.TrimPrefix(second.text("url"), publicURL), nil), 404, "not_found")
	if n := w.count(`SELECT count(*) FROM events e WHERE type LIKE 'calendar_feed.%' AND e::text LIKE '%' || $1 || '%'`, strings.TrimSuffix(path[len("/v1/public/me/calendar/"):], ".ics")); n != 0 {
		t.Error("an event holds the token")
	}
}

func TestWithoutKeysOrAddress(t *testing.T) {
	w := setup(t)
	w.open(nil)
	before := w.rows()
	keys, err := secret.ParseKeys(strings.Repeat("QUJD", 11))
	if err != nil {
		t.Fatal(err)
	}
	for code, d := range map[string]bookings.Deps{"keys_not_configured": {DB: w.db, PublicURL: publicURL}, "public_url_not_configured": {DB: w.db, Keys: keys}} {
		store := &auth.Store{DB: w.db}
		t.Cleanup(func() { store.Flush(context.Background()) })
		s := httptest.NewServer(op.NewCatalog(bookings.Create(d), bookings.CreateFeed(d)).Handler(&op.Server{Authenticate: store.Authenticate}))
		t.Cleanup(s.Close)
		w.url = s.URL
		w.refused(w.call("", "POST", create, request(day(3))), 409, code)
		w.refused(w.call(w.token, "POST", "/v1/calendar-feed", nil), 409, code)
	}
	if after := w.rows(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}
