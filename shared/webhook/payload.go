package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"standmeet/shared/outbox"
)

// payload is the body that a receiver gets: what happened to which thing. Whoever
// wants more asks for it.
type payload struct {
	Type      string                     `json:"type"`
	Timestamp time.Time                  `json:"timestamp"`
	Data      map[string]json.RawMessage `json:"data"`
}

func encode(kind string, at time.Time, data map[string]json.RawMessage) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(payload{kind, at.UTC(), data}); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// leaves reports whether an event may leave by webhook, and gives its payload:
// its subject and the facts that its type allows.
func leaves(e outbox.Event) (body string, ok bool, err error) {
	t, _ := outbox.Lookup(e.Type)
	if !t.Exposed {
		return "", false, nil
	}
	if e.Type == outbox.NoteChanged && !bytes.Contains(e.Data, []byte(`"public"`)) {
		return "", false, nil // most are, and need not be read
	}
	var data map[string]json.RawMessage
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return "", false, fmt.Errorf("webhook: data of %s: %w", e.Type, err)
	}
	if e.Type == outbox.NoteChanged && !public(data) {
		return "", false, nil
	}
	facts := map[string]json.RawMessage{}
	for _, name := range t.Facts {
		if fact, ok := data[name]; ok && string(fact) != "null" {
			facts[name] = fact
		}
	}
	if facts["id"], err = json.Marshal(e.Subject); err != nil {
		return "", false, err
	}
	body, err = encode(e.Type, e.OccurredAt, facts)
	return body, err == nil, err
}

// public: the note is or was there for everybody. A raw one never is.
func public(note map[string]json.RawMessage) bool {
	is := func(field, value string) bool { return string(note[field]) == `"`+value+`"` }
	return !is("genre", "raw") && (is("visibility", "public") || is("was_visibility", "public"))
}

// testPayload is what webhooks.send_test sends.
func testPayload(e Endpoint, at time.Time) (string, error) {
	id, err := json.Marshal(e.ID)
	if err != nil {
		return "", err
	}
	return encode(TypeTest, at, map[string]json.RawMessage{"id": id})
}
