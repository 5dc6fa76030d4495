package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-ical"
)

// bookable lets visitors book every day between these hours.
func (s *site) bookable(zone, from, to string) {
	s.Helper()
	week := object{}
	for _, d := range []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"} {
		week[d] = []object{{"from": from, "to": to}}
	}
	s.must("PUT", "/v1/availability", object{"time_zone": zone, "weekly": week, "horizon_days": 730})
}

// booked is a booking of the site's owner, a few days ahead.
func (s *site) booked(more object) answer {
	s.Helper()
	s.bookable("UTC", "00:00", "24:00")
	body := object{"start": midnight(5).Format(time.RFC3339), "name": "Vera", "email": "vera@example.test"}
	for k, v := range more {
		body[k] = v
	}
	return s.must("POST", "/v1/public/"+s.handle+"/bookings", body)
}

func midnight(days int) time.Time {
	return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, days)
}

// starts of the slots of an answer.
func (a answer) starts() (all []string) {
	slots, _ := a.at("slots").([]any)
	for _, s := range slots {
		o, _ := s.(object)
		all = append(all, answer{body: o}.text("start"))
	}
	return all
}

// lastSunday of a month, at that hour in UTC.
func lastSunday(year int, month time.Month) time.Time {
	t := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC)
	return t.AddDate(0, 0, -int(t.Weekday()))
}

// Case B2: the first slot is at nine by the owner's clock on both sides of both
// changes, wherever the server stands; it books, and answer, mail and calendar
// file say the same.
func TestSlotsAcrossClockChanges(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "America/New_York", "Australia/Lord_Howe"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			p := s.start("gateway,relay,workers", "TZ="+zone)
			s.bookable("Europe/Berlin", "09:00", "17:00")
			public := "/v1/public/" + s.handle + "/bookings"
			year := midnight(0).Year() + 1
			for i, c := range []struct {
				day   time.Time
				hour  int
				shift string
			}{
				{lastSunday(year, time.March).AddDate(0, 0, -2), 8, "UTC+01:00"},
				{lastSunday(year, time.March).AddDate(0, 0, 1), 7, "UTC+02:00"},
				{lastSunday(year, time.October).AddDate(0, 0, -2), 7, "UTC+02:00"},
				{lastSunday(year, time.October).AddDate(0, 0, 1), 8, "UTC+01:00"},
			} {
				start := c.day.Add(time.Duration(c.hour) * time.Hour)
				want := start.Format(time.RFC3339)
				got := s.must("GET", public+"/slots?from="+c.day.Format(time.DateOnly)+"&to="+c.day.Format(time.DateOnly), nil).starts()
				if len(got) != 16 || got[0] != want {
					t.Errorf("%s: %v, want 16 from %s", c.day.Format(time.DateOnly), got, want)
				}
				visitor := fmt.Sprintf("v%d@example.test", i)
				a := s.must("POST", public, object{"start": want, "duration_min": 30, "name": "Vera", "email": visitor, "topic": "B2"})
				when := c.day.Format("Monday, 2 January 2006") + ", 09:00–09:30 Europe/Berlin (" + c.shift + ")"
				if a.text("booking.start") != want || a.text("booking.when") != when {
					t.Errorf("want %s, %s: %s", want, when, a.raw)
				}
				s.eventually("the mail", func() bool {
					return s.must("GET", "/v1/bookings/"+a.text("booking.id")+"?manage_token="+a.text("manage_token"), nil).text("notification.state") == "sent"
				})
				mail := mailTo(t, p, visitor)
				if text := strings.ReplaceAll(mail, "=\r\n", ""); !strings.Contains(text, strings.ReplaceAll(when, "–", "=E2=80=93")) {
					t.Errorf("the mail does not say %s: %s", when, mail)
				}
				file := s.must("GET", strings.TrimPrefix(a.text("ics_url"), s.base), nil)
				cal, err := ical.NewDecoder(strings.NewReader(file.raw)).Decode()
				if err != nil {
					t.Fatal(err)
				}
				if at, err := cal.Children[0].Props.DateTime("DTSTART", time.UTC); err != nil || !at.Equal(start) {
					t.Errorf("the file says %v, %v", at, err)
				}
			}
		})
	}
}

// mailTo is the one mail that the process wrote for an address.
func mailTo(t *testing.T, p *process, address string) string {
	t.Helper()
	envelopes, err := filepath.Glob(filepath.Join(p.cmd.Dir, "local", ".run", "mail", "*.env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range envelopes {
		envelope, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(envelope, []byte("<"+address+">")) {
			mail, err := os.ReadFile(strings.TrimSuffix(name, ".env") + ".eml")
			if err != nil {
				t.Fatal(err)
			}
			return string(mail)
		}
	}
	t.Fatalf("no mail to %s", address)
	return ""
}

// One slot, asked for by a hundred at two gateways: one has it.
func TestOneSlotAtTwoGateways(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	second := *s
	second.start("gateway", "SECRET_KEY="+strings.Repeat("QUJD", 11))
	s.bookable("UTC", "00:00", "24:00")
	noon := midnight(6).Add(12 * time.Hour)
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for i := range 100 {
		all.Go(func() {
			at := []*site{s, &second}[i%2]
			// different lengths, all of which hold noon
			early := i % 4
			a := at.call("POST", "/v1/public/"+s.handle+"/bookings", object{
				"start": noon.Add(-time.Duration(early) * 30 * time.Minute).Format(time.RFC3339), "duration_min": 30*early + 30, "name": "V", "email": "v@example.test",
			})
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(a.status, " ", a.text("code"))]++
		})
	}
	all.Wait()
	if len(got) != 2 || got["201 "] != 1 || got["409 slot_taken"] != 99 {
		t.Errorf("%v", got)
	}
}

// Over both faces the owner sees and does the same.
func TestBookingsOfAnOwner(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	a, b := s.booked(nil), s.booked(object{"start": midnight(5).Add(time.Hour).Format(time.RFC3339)})
	id := a.text("booking.id")
	for _, face := range faces {
		list := s.over(face, "bookings.list", object{})
		// by their start: the first has been moved behind the second when the second face is asked
		if items := list.items(); len(items) != 2 || items[0].text("booking.start") >= items[1].text("booking.start") ||
			!strings.Contains(list.raw, id) || !strings.Contains(list.raw, b.text("booking.id")) {
			t.Errorf("%s: %s", face, list.raw)
		}
		start := midnight(7).Add(time.Duration(slices.Index(faces, face)) * time.Hour).Format(time.RFC3339)
		if moved := s.over(face, "bookings.reschedule", object{"id": id, "start": start}); moved.status != 200 || moved.text("booking.start") != start {
			t.Errorf("%s: %d %s", face, moved.status, moved.raw)
		}
		if taken := s.over(face, "bookings.reschedule", object{"id": id, "start": b.text("booking.start")}); taken.status != 409 || taken.text("code") != "slot_taken" {
			t.Errorf("%s: %d %s", face, taken.status, taken.raw)
		}
		feed := s.over(face, "calendar_feed.create", object{})
		path := strings.TrimPrefix(feed.text("url"), s.base)
		first := s.must("GET", path, nil)
		if strings.Count(first.raw, "BEGIN:VEVENT") != 2 || s.must("GET", path, nil).raw != first.raw {
			t.Errorf("%s: %s", face, first.raw)
		}
		if same := s.call("GET", path, nil, "If-None-Match: "+first.header.Get("ETag")); same.status != http.StatusNotModified {
			t.Errorf("%s: %d", face, same.status)
		}
	}
	s.eventually("the mails", func() bool { return s.count(`SELECT count(*) FROM bookings WHERE mail_state <> 'sent'`) == 0 })
	if got := s.over("mcp", "bookings.cancel", object{"id": id}); got.status != 200 || got.text("booking.cancelled_by") != "owner" {
		t.Errorf("%d %s", got.status, got.raw)
	}
	// its receipts are tasks
	got := s.over("mcp", "bookings.get", object{"id": id})
	for _, receipt := range []string{got.text("notification.job_id"), got.text("owner_notification.job_id")} {
		s.eventually(receipt, func() bool {
			return s.over("mcp", "tasks.get", object{"id": receipt}).text("task.state") == "completed"
		})
	}
	if got = s.over("http", "bookings.get", object{"id": id}); got.text("notification.state") != "sent" || got.text("owner_notification.state") != "sent" {
		t.Errorf("%s", got.raw)
	}
}
