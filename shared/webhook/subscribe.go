package webhook

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
)

// MaxGlobs is how many globs a subscription may have.
const MaxGlobs = 50

// TypeTest is the type of what webhooks.send_test sends. Nothing subscribes to it.
const TypeTest = "webhook.test"

// EventType is an event type that may leave by webhook.
type EventType struct {
	Name        string   `json:"name"`
	Description string   `json:"description" jsonschema:"when it happens"`
	Data        []string `json:"data" jsonschema:"the fields that data may have; id is what the event is about"`
}

// EventTypes lists them, ordered by name.
func EventTypes() []EventType {
	var all []EventType
	for _, t := range outbox.Types() {
		if t.Exposed {
			all = append(all, EventType{t.Name, t.Description, append([]string{"id"}, t.Facts...)})
		}
	}
	slices.SortFunc(all, func(a, b EventType) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Subscription gives globs as they are kept, each once. Fault "invalid_request"
// for one that is no glob or that no exposed type matches.
func Subscription(globs []string) ([]string, error) {
	if len(globs) == 0 {
		return nil, fault.InvalidField("event_types", "missing_field", "Give at least one event type; * is all of them.")
	}
	var kept []string
	for i, g := range globs {
		name := fmt.Sprintf("event_types[%d]", i)
		if !regexp.MustCompile(`^[a-z0-9_.*]+$`).MatchString(g) {
			return nil, fault.InvalidField(name, "invalid_format", "An event type is written like booking.created, and * stands for any part of it.")
		}
		if !slices.ContainsFunc(EventTypes(), func(t EventType) bool { return matches(g, t.Name) }) {
			return nil, fault.InvalidField(name, "unknown_event_type", "No event type that webhooks can have matches this; webhooks.event_types lists them.")
		}
		if !slices.Contains(kept, g) {
			kept = append(kept, g)
		}
	}
	return kept, nil
}

// matches: names have no slash, so * goes over dots.
func matches(glob, name string) bool {
	ok, _ := path.Match(glob, name) // a kept glob is well-formed
	return ok
}
