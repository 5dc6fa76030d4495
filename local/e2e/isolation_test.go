package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/jackc/pgx/v5"

	"standmeet/functions"
	"standmeet/shared/op"
)

// secret marks everything that the victim owns.
const secret = "zanzibarsecret"

// mine are ids of the victim's, by the first word of the operations that take
// them. An operation that takes an id of a family that is missing here fails the
// test.
func mine(s *site) map[string]string {
	note := s.create(object{"genre": "wiki", "title": secret, "body": secret, "tags": []string{secret}})
	s.must("POST", "/v1/tokens", object{"name": secret, "scopes": []string{"corpus:read"}})
	ids := map[string]string{
		"corpus": note.text("note.id"),
		"tasks":  note.text("index_job_id"),
		"events": strings.Split(note.text("index_job_id"), ":")[0],
	}
	if err := s.db.QueryRow(s.Context(), `SELECT id::text FROM tokens WHERE name = $1`, secret).Scan(ptr(ids, "tokens")); err != nil {
		s.Fatal(err)
	}
	return ids
}

// ptr scans into a map's entry.
func ptr(m map[string]string, key string) *mapEntry { return &mapEntry{m, key} }

type mapEntry struct {
	m   map[string]string
	key string
}

// Scan implements sql.Scanner.
func (e *mapEntry) Scan(v any) error { e.m[e.key] = fmt.Sprint(v); return nil }

// owned is a digest of every row that the owner has, by table.
func (s *site) owned(handle string) map[string]string {
	s.Helper()
	rows, err := s.db.Query(s.Context(), `SELECT table_name::text FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'owner_id'`)
	if err != nil {
		s.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.Fatal(err)
	}
	digests := map[string]string{}
	for _, table := range tables {
		var digest string
		if err := s.db.QueryRow(s.Context(), fmt.Sprintf(`
			SELECT coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '') FROM %s t
			WHERE owner_id = (SELECT id FROM owners WHERE handle = $1)`, pgx.Identifier{table}.Sanitize()), handle).Scan(&digest); err != nil {
			s.Fatal(err)
		}
		digests[table] = digest
	}
	return digests
}

var namesID = regexp.MustCompile(`^id$|_ids?$`)

// sample is a plausible value for a property; ids are the victim's.
func sample(name, family string, p *jsonschema.Schema, ids map[string]string) any {
	switch {
	case len(p.Enum) > 0:
		return p.Enum[0]
	case namesID.MatchString(name):
		if p.Type == "array" {
			return []any{ids[family]}
		}
		return ids[family]
	}
	switch p.Type {
	case "integer", "number":
		if p.Minimum != nil {
			return *p.Minimum
		}
		return 1
	case "boolean":
		return true
	case "array":
		return []any{sample(strings.TrimSuffix(name, "s"), family, p.Items, ids)}
	case "object":
		return object{}
	}
	if p.Format == "date-time" {
		return "2026-01-02T03:04:05Z"
	}
	return "x"
}

// Every operation, called with another owner's ids: not_found or the like,
// nothing leaks, nothing changes. It is driven by the catalog, so that a new
// operation is covered without anyone remembering.
func TestAnotherOwnersThings(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	ids := mine(s)
	other := s.stranger("stranger")
	s.eventually("rest", func() bool { return s.count(`SELECT count(*) FROM event_queue`) == 0 })
	before := s.owned(s.handle)
	for _, o := range functions.Catalog(functions.Deps{}).Ops() {
		spec := o.Spec()
		if spec.Access == op.Public {
			continue
		}
		family, _, _ := strings.Cut(spec.Name, ".")
		properties := o.InputSchema().Properties
		takesID := slices.ContainsFunc(slices.Collect(maps.Keys(properties)), namesID.MatchString)
		if takesID && ids[family] == "" {
			t.Errorf("%s takes an id, and this test has none of the victim's for %s", spec.Name, family)
			continue
		}
		// with all fields, and with only those that are required
		for _, every := range []bool{true, false} {
			path, query, body := spec.Path, url.Values{}, object{}
			for name, p := range properties {
				if name == "idempotency_key" || name == "wait_seconds" || name == "cursor" || name == "if_match" { // HTTP headers
					continue
				}
				if !every && !slices.Contains(o.InputSchema().Required, name) && !namesID.MatchString(name) {
					continue
				}
				v := sample(name, family, p, ids)
				switch {
				case strings.Contains(path, "{"+name+"}"):
					path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(fmt.Sprint(v)))
				case spec.Method == http.MethodGet || spec.Method == http.MethodDelete:
					query.Set(name, fmt.Sprint(v))
				default:
					body[name] = v
				}
			}
			if len(query) > 0 {
				path += "?" + query.Encode()
			}
			var payload any
			if spec.Method != http.MethodGet && spec.Method != http.MethodDelete {
				payload = body
			}
			a := other.call(spec.Method, path, payload, "Prefer: wait=0")
			if strings.Contains(a.raw, secret) {
				t.Errorf("%s leaks: %s", spec.Name, a.raw)
			}
			if a.status >= 500 {
				t.Errorf("%s: %d %s", spec.Name, a.status, a.raw)
			}
			if takesID && strings.Contains(spec.Path, "{id}") && (a.status != 404 || a.text("code") != "not_found") {
				t.Errorf("%s with another owner's id: %d %s", spec.Name, a.status, a.raw)
			}
			if takesID && a.status/100 == 2 && a.at("total") != 0.0 {
				t.Errorf("%s took another owner's id: %s", spec.Name, a.raw)
			}
		}
	}
	if after := s.owned(s.handle); !maps.Equal(before, after) {
		for table := range before {
			if before[table] != after[table] {
				t.Errorf("the victim's rows of %s changed", table)
			}
		}
	}
}
