package task

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"standmeet/shared/outbox"
)

// Only a completed task is spoken of as done; R15 of the contract.
func TestCopyClaimsOnlyWhatIsCompleted(t *testing.T) {
	t.Parallel()
	done := regexp.MustCompile(`(?i)\b(sent|delivered|notified|informed|told|invited|mailed|emailed|published|live|built|ran|imported|done|finished|searchable)\b|\bindexed:|and indexed|search knows|search finds`)
	kinds := []string{"", "no.such.kind"}
	for _, k := range Kinds() {
		kinds = append(kinds, k.Name)
		if _, ok := sentences()[k.Name]; !ok {
			t.Errorf("%s has no sentences of its own", k.Name)
		}
	}
	for _, kind := range kinds {
		seen := map[string]State{}
		for _, state := range States() {
			line := Say(kind, state)
			if line == "" || !strings.HasSuffix(line, ".") {
				t.Errorf("%s %s: %q is no sentence", kind, state, line)
			}
			if other, dup := seen[line]; dup {
				t.Errorf("%s: %s and %s say the same", kind, state, other)
			}
			seen[line] = state
			claim := strings.NewReplacer("before it was done", "", "what it had done until then stays done", "").Replace(line)
			if state != Completed && done.MatchString(claim) {
				t.Errorf("%s %s claims what has not happened: %q", kind, state, line)
			}
			if state == Completed && !done.MatchString(line) {
				t.Errorf("%s %s does not say that it is done: %q", kind, state, line)
			}
		}
	}
	for kind, lines := range sentences() {
		if _, ok := LookupKind(kind); kind != "" && !ok {
			t.Errorf("sentences for %s, which is not declared", kind)
		}
		for state := range lines {
			if !slices.Contains(States(), state) {
				t.Errorf("%s has a sentence for %q, which is no state", kind, state)
			}
		}
	}
}

func TestDeclarations(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	for _, e := range outbox.Types() {
		if e.Description == "" || e.Command && len(e.Subscribers) > 0 {
			t.Errorf("%+v", e)
		}
		for _, s := range e.Subscribers {
			asked[s] = true
		}
	}
	if !slices.IsSortedFunc(Kinds(), func(a, b Kind) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("kinds are not ordered")
	}
	for _, k := range Kinds() {
		if !asked[k.Name] || k.Title == "" || k.Queue == "" || k.MaxAttempts < 1 || k.Timeout <= 0 {
			t.Errorf("%+v", k)
		}
	}
}

func TestParseID(t *testing.T) {
	t.Parallel()
	id := ID{Event: uuid.New(), Subscriber: CorpusIndex}
	if got, err := ParseID(id.String()); err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"", ":", "x", id.Event.String(), "urn:uuid:" + id.Event.String() + ":x", "{" + id.Event.String() + "}:x", "9007199254740993"} {
		if _, err := ParseID(s); err == nil {
			t.Errorf("%q is taken for an id", s)
		}
	}
}
