package webhook

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
)

// internal are the types that never leave. A new type is in neither list, and
// whoever adds it decides here or by Exposed.
func internal() []string {
	return []string{
		outbox.SignInLinkRequested, outbox.JobsFetchRequested, outbox.MailTestRequested, outbox.PeriodicRunRequested,
		outbox.TaskCancelRequested, outbox.TaskRetryRequested, outbox.TasksBulkRequested,
		outbox.WebhookCreated, outbox.WebhookUpdated, outbox.WebhookDeleted, outbox.WebhookDisabled, outbox.WebhookSecretRotated, outbox.DeliveryRequested,
	}
}

func TestEveryTypeIsDecidedOn(t *testing.T) {
	t.Parallel()
	forbidden := []string{"email", "message", "body", "title", "code", "token", "secret", "link", "password", "topic", "id"}
	for _, o := range outbox.Types() {
		if o.Exposed == slices.Contains(internal(), o.Name) {
			t.Errorf("%s is neither exposed nor internal, or both", o.Name)
		}
		if !o.Exposed && o.Facts != nil {
			t.Errorf("%s has facts and doesn't leave", o.Name)
		}
		for _, f := range o.Facts {
			if slices.Contains(forbidden, f) {
				t.Errorf("%s would tell %s", o.Name, f)
			}
		}
	}
	for _, e := range EventTypes() {
		if e.Description == "" || !strings.HasSuffix(e.Description, ".") || e.Data[0] != "id" {
			t.Errorf("%+v", e)
		}
	}
}

func TestWhatLeaves(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.FixedZone("x", 3600))
	event := func(kind, data string) outbox.Event {
		return outbox.Event{ID: uuid.New(), Type: kind, Subject: "s-1", Data: json.RawMessage(data), OccurredAt: at}
	}
	for name, c := range map[string]struct {
		event outbox.Event
		want  string // "" stays inside
	}{
		"allowed fields":   {event(outbox.AccessSubmitted, `{"name": "<b>&\" 日本", "org": "", "email": "e@x", "message": "m", "request_id": "r"}`), `{"type":"access_request.submitted","timestamp":"2026-03-01T11:00:00.005Z","data":{"id":"s-1","name":"<b>&\" 日本","org":""}}`},
		"nothing besides":  {event(outbox.CodeRedeemed, `{"code_id": "c", "code": "SECRET"}`), `{"type":"code.redeemed","timestamp":"2026-03-01T11:00:00.005Z","data":{"id":"s-1"}}`},
		"null is left out": {event(outbox.NoteChanged, `{"genre": "wiki", "version": 3, "visibility": "public", "was_visibility": null, "change": "created", "title": "T"}`), `{"type":"corpus.note.changed","timestamp":"2026-03-01T11:00:00.005Z","data":{"change":"created","genre":"wiki","id":"s-1","version":3,"visibility":"public"}}`},
		"was public":       {event(outbox.NoteChanged, `{"genre": "output", "visibility": "private", "was_visibility": "public"}`), `{"type":"corpus.note.changed","timestamp":"2026-03-01T11:00:00.005Z","data":{"genre":"output","id":"s-1","visibility":"private","was_visibility":"public"}}`},
		"raw":              {event(outbox.NoteChanged, `{"genre": "raw", "visibility": "public", "was_visibility": "public"}`), ""},
		"coded":            {event(outbox.NoteChanged, `{"genre": "wiki", "visibility": "coded", "was_visibility": "private", "change": "public"}`), ""},
		"internal":         {event(outbox.MailTestRequested, `{}`), ""},
		"undeclared":       {event("x.y", `{}`), ""},
	} {
		body, ok, err := leaves(c.event)
		if err != nil || ok != (c.want != "") || body != c.want {
			t.Errorf("%s: %v %v\n%s\n%s", name, ok, err, body, c.want)
		}
	}
	if _, _, err := leaves(event(outbox.CodeCreated, `[]`)); err == nil {
		t.Error("data that is no object")
	}
}

func TestSubscription(t *testing.T) {
	t.Parallel()
	for _, globs := range [][]string{{"*"}, {"booking.*"}, {"booking.created", "*.changed"}, {"corpus.note.changed"}} {
		if kept, err := Subscription(globs); err != nil || !slices.Equal(kept, globs) {
			t.Errorf("%v: %v, %v", globs, kept, err)
		}
	}
	if kept, err := Subscription([]string{"code.*", "*", "code.*"}); err != nil || len(kept) != 2 {
		t.Errorf("%v, %v", kept, err)
	}
	for _, globs := range [][]string{nil, {}, {""}, {"Booking.*"}, {"[b]ooking.created"}, {"booking.create?"}, {`\*`}, {"nope.*"}, {"task.*"}, {"mail.test_requested"}, {"webhook.*"}, {"*", "webhook.test"}} {
		_, err := Subscription(globs)
		if f := fault.From(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0].Name, "event_types") {
			t.Errorf("%q: %v", globs, err)
		}
	}
	for glob, names := range map[string]map[string]bool{
		"*":         {"corpus.note.changed": true, "code.created": true},
		"booking.*": {"booking.created": true, "booking": false, "code.created": false},
		"*.changed": {"corpus.note.changed": true, "availability.changed": true, "code.created": false},
	} {
		for name, want := range names {
			if matches(glob, name) != want {
				t.Errorf("%s and %s", glob, name)
			}
		}
	}
}
