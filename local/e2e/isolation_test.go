package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/op"
	"standmeet/shared/outbox"
)

// secret marks everything that the victim owns.
const secret = "zanzibarsecret"

// mine are ids of the victim's, by the first word of the operations that take
// them. An operation that takes an id of a family that is missing here fails the
// test.
func mine(s *site) map[string][]string {
	note := s.create(object{"genre": "wiki", "title": secret, "body": secret, "tags": []string{secret}})
	raw := s.create(object{"genre": "raw", "body": secret})
	gone := s.create(object{"genre": "output", "title": secret, "body": secret})
	s.must("DELETE", "/v1/corpus/"+gone.text("note.id"), nil)
	token := s.must("POST", "/v1/tokens", object{"name": secret, "scopes": []string{"corpus:read"}}, "Idempotency-Key: "+secret)
	receipt := note.text("index_job_id")
	// and one that could still be retried
	failed := s.must("POST", "/v1/mail/send-test", object{}).text("mail.job_id")
	s.exec(`UPDATE tasks SET state = 'discarded' WHERE event_id::text || ':' || subscriber = $1`, failed)
	var job string
	s.eventually("a job's number", func() bool {
		job = s.must("GET", "/v1/tasks/"+receipt, nil).text("task.job_id")
		return job != ""
	})
	// and an event that could be put back
	aside := outbox.NewID().String()
	s.exec(`INSERT INTO events (id, type, owner_id, subject, data) SELECT $1, 'corpus.note.changed', id, $2, '{}' FROM owners WHERE handle = $3`, aside, secret, s.handle)
	s.exec(`INSERT INTO event_queue (event_id, attempts, poisoned_at, last_error) VALUES ($1, 5, now(), $2)`, aside, secret)
	booking := s.booked(object{"name": secret, "topic": secret})
	asked := s.asks(object{"name": secret, "org": secret, "email": secret + "@example.test", "message": secret})
	approved := s.asks(object{"message": secret})
	code := s.must("POST", "/v1/access-requests/"+approved+"/approve", object{"label": secret})
	// one that nothing here is delivered to
	endpoint := s.must("POST", "/v1/webhooks", object{"url": "https://hooks.example.com/" + secret, "description": secret, "event_types": []string{"calendar_feed.revoked"}})
	s.must("POST", "/v1/obsidian/import", object{"files": []object{
		{"path": "wiki/x.md", "content": secret + " ![[x.png]]"}, {"path": "x.png", "content": secret}, {"path": "x", "content": secret}}})
	source := s.must("POST", "/v1/job-sources", object{"kind": "rss", "url": "https://feeds.example.com/" + secret, "name": secret}).text("source.id")
	fetch := fmt.Sprint(s.must("POST", "/v1/jobs/fetch-new", object{}, "Prefer: wait=0").at("job_ids").([]any)[0])
	listing := outbox.NewID().String()
	s.exec(`INSERT INTO job_listings (id, owner_id, source_id, external_id, url, canonical_url, page, title, company, location, description, found_by)
		SELECT $1, owner_id, id, 'x', '', '', '', $3, $3, $3, $3, $1 FROM job_sources WHERE id = $2`, listing, source, secret)
	s.must("POST", "/v1/microsites", object{"slug": secret, "title": secret, "files": []object{{"path": "index.md", "content": secret}}})
	build := s.must("POST", "/v1/microsites/"+secret+"/build", nil).text("build_id")
	return map[string][]string{
		"microsites":      {build},
		"job_sources":     {source},
		"jobs":            {source, listing, fetch},
		"webhooks":        {endpoint.text("endpoint.id")},
		"access_requests": {asked, approved},
		"codes":           {code.text("code_id")},
		"bookings":        {booking.text("booking.id")},
		"corpus":          {note.text("note.id"), raw.text("note.id"), gone.text("note.id")},
		"tasks":           {receipt, job, failed, aside + ":corpus.index", code.text("mail.job_id")},
		"events":          {eventOf(receipt), aside},
		"tokens":          {token.text("token.id")},
	}
}

// rest waits until no work is in flight.
func (s *site) rest() {
	s.Helper()
	s.eventually("rest", func() bool {
		return s.count(`SELECT (SELECT count(*) FROM event_queue WHERE poisoned_at IS NULL) + (SELECT count(*) FROM tasks WHERE state IN ('pending', 'running'))`) == 0
	})
}

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
			SELECT coalesce(md5(string_agg((to_jsonb(t) - 'last_used_at')::text, '|' ORDER BY (to_jsonb(t) - 'last_used_at')::text)), '') FROM %s t
			WHERE owner_id = (SELECT id FROM owners WHERE handle = $1)`, pgx.Identifier{table}.Sanitize()), handle).Scan(&digest); err != nil {
			s.Fatal(err)
		}
		digests[table] = digest
	}
	return digests
}

var namesID = regexp.MustCompile(`^id$|_ids?$`)

// sample is a plausible value for a property; ids are the victim's.
func sample(name, id, subject string, p *jsonschema.Schema) any {
	switch {
	case len(p.Enum) > 0:
		return p.Enum[0]
	case namesID.MatchString(name):
		if p.Type == "array" {
			return []any{id}
		}
		return id
	case name == "subject":
		return subject
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
		return []any{sample(strings.TrimSuffix(name, "s"), id, subject, p.Items)}
	case "object":
		return object{}
	}
	if p.Format == "date-time" {
		return "2026-01-02T03:04:05Z"
	}
	return "x"
}

// Every operation, called with another owner's ids over both faces: not_found or
// the like, nothing leaks, nothing changes. It is driven by the catalog, so that a
// new operation is covered without anyone remembering.
func TestAnotherOwnersThings(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	ids := mine(s)
	other := s.stranger("stranger")
	s.rest()
	before := s.owned(s.handle)
	for _, o := range catalog().Ops() {
		spec := o.Spec()
		if spec.Access == op.Public {
			continue
		}
		family, _, _ := strings.Cut(spec.Name, ".")
		properties := o.InputSchema().Properties
		takesID := slices.ContainsFunc(slices.Collect(maps.Keys(properties)), namesID.MatchString)
		if takesID && len(ids[family]) == 0 {
			t.Errorf("%s takes an id, and this test has none of the victim's for %s", spec.Name, family)
			continue
		}
		of := ids[family]
		if !takesID {
			of = []string{""}
		}
		called := 0
		for _, face := range faces {
			if face == "mcp" && spec.Tool == nil {
				continue
			}
			for _, id := range of {
				// with all fields, with what is required and ids, and with what is
				// required and a subject
				for _, fields := range []string{"all", "ids", "subject"} {
					if _, ok := properties["subject"]; fields == "subject" && !ok {
						continue
					}
					arguments := object{}
					for name, p := range properties {
						isID := namesID.MatchString(name)
						switch {
						case name == "wait_seconds":
							arguments[name] = 0
						case name == "idempotency_key":
							if fields == "all" {
								arguments[name] = secret // the victim's too
							}
						case name == "cursor" || name == "if_match":
						case fields == "all" || slices.Contains(o.InputSchema().Required, name) || isID && fields == "ids" || name == "subject" && fields == "subject":
							arguments[name] = sample(name, id, ids["corpus"][0], p)
						}
					}
					a := other.over(face, spec.Name, arguments)
					called++
					where := fmt.Sprintf("%s %v over %s: %d %.500s", spec.Name, arguments, face, a.status, a.raw)
					if told := strings.ReplaceAll(a.raw, `"idempotency_key":"`+secret, ""); strings.Contains(told, secret) {
						t.Errorf("it leaks: %s", where)
					}
					if a.status >= 500 || a.status == 0 || a.status == 401 || a.status == 403 {
						t.Errorf("%s", where)
					}
					named := arguments["id"] != nil && fields != "subject"
					if named && (a.status != 404 || a.text("code") != "not_found") && a.status != 400 {
						t.Errorf("another owner's id: %s", where)
					}
					if named && fields == "ids" && a.status != 404 {
						t.Errorf("another owner's id: %s", where)
					}
					if takesID && !named && fields == "ids" && a.status/100 == 2 && a.at("total") != 0.0 {
						t.Errorf("it took another owner's id: %s", where)
					}
					if spec.Method == http.MethodGet && fields == "subject" && a.at("total") != 0.0 {
						t.Errorf("it lists what another owner's note caused: %s", where)
					}
				}
			}
		}
		if called == 0 {
			t.Errorf("%s was not called", spec.Name)
		}
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		for _, id := range ids["tasks"] {
			if a := other.rpc(method, object{"taskId": id}, true); a.at("error.code") != -32602.0 || strings.Contains(a.raw, secret) {
				t.Errorf("%s of another owner's task: %s", method, a.raw)
			}
		}
	}
	s.rest()
	if after := s.owned(s.handle); !maps.Equal(before, after) {
		for table := range before {
			if before[table] != after[table] {
				t.Errorf("the victim's rows of %s changed", table)
			}
		}
	}
	// the ids are good: their owner can read what they name
	for name, id := range map[string]string{"access_requests.get": ids["access_requests"][1], "corpus.get": ids["corpus"][0], "tasks.get": ids["tasks"][1], "events.get": ids["events"][1]} {
		if a := s.over("mcp", name, object{"id": id}); a.status != 200 || !strings.Contains(a.raw, id) {
			t.Errorf("%s by its owner: %s", name, a.raw)
		}
	}
}

// Nobody gets to an owner's operation without credentials of an owner.
func TestVisitorsAreNoOwners(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	ids := mine(s)
	s.rest()
	before := s.owned(s.handle)
	for _, token := range []string{"", "smt_" + strings.Repeat("A", 43), "x"} {
		visitor := *s
		visitor.token = token
		for _, o := range catalog().Ops() {
			spec := o.Spec()
			if spec.Access == op.Public {
				continue
			}
			family, _, _ := strings.Cut(spec.Name, ".")
			arguments := object{}
			for name, p := range o.InputSchema().Properties {
				if slices.Contains(o.InputSchema().Required, name) {
					arguments[name] = sample(name, append(ids[family], "")[0], "", p)
				}
			}
			path, body, headers := request(o, arguments)
			if a := visitor.call(spec.Method, path, body, headers...); a.status != 401 || strings.Contains(a.raw, secret) {
				t.Errorf("%s with token %q: %d %s", spec.Name, token, a.status, a.raw)
			}
			if a := visitor.tool(o.ToolName(false), arguments, false); a.status != 401 || strings.Contains(a.raw, secret) {
				t.Errorf("%s over MCP with token %q: %d %s", spec.Name, token, a.status, a.raw)
			}
		}
	}
	if after := s.owned(s.handle); !maps.Equal(before, after) {
		t.Error("the victim's rows changed")
	}
}

// What is public is read by anybody, whoever they are; nothing else is, by any
// public operation, under any address.
func TestPublicRoutesTellOnlyWhatIsPublic(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	note := func(title, visibility string) answer {
		return s.create(object{"genre": "wiki", "title": title, "body": secret + " beside [[Everybodys]]", "visibility": visibility, "tags": []string{"common", secret}, "aliases": []string{secret + title}, "source": secret})
	}
	public := s.create(object{"genre": "wiki", "title": "Everybodys", "body": "an openword for all", "visibility": "public", "tags": []string{"common"}, "source": secret})
	hidden := map[string]answer{"private": note("private", "private"), "coded": note("coded", "coded"), "was-public": note("was public", "public"), "deleted": note("deleted", "public")}
	s.must("PATCH", "/v1/corpus/"+hidden["was-public"].text("note.id"), object{"visibility": "private"})
	s.must("DELETE", "/v1/corpus/"+hidden["deleted"].text("note.id"), nil)
	s.create(object{"genre": "raw", "body": secret + " openword"})

	booking := s.booked(object{"name": secret, "topic": secret})
	s.must("POST", "/v1/calendar-feed", nil)
	s.must("POST", "/v1/obsidian/import", object{"files": []object{
		{"path": "output/shown.md", "content": "---\npublish: true\n---\n![[shown.png]] [[linked.png]]"}, {"path": "output/hidden.md", "content": secret + " ![[hidden.png]]"},
		{"path": "shown.png", "content": "for all"}, {"path": "hidden.png", "content": secret}, {"path": "linked.png", "content": secret}}})

	paths := []string{}
	for slug, a := range hidden {
		if a.text("note.path") != slug {
			t.Fatalf("%s has path %q: %s", slug, a.text("note.path"), a.raw)
		}
		paths = append(paths, slug, a.text("note.id"), secret+a.text("note.title"))
	}
	paths = append(paths, "Everybodys/../private", "%2e%2e/private", "private/", "PRIVATE")
	anonymous := *s
	anonymous.token = ""
	for who, reader := range map[string]*site{"a visitor": &anonymous, "another owner": s.stranger("stranger")} {
		read := func(name string, arguments object) answer {
			t.Helper()
			arguments["handle"] = s.handle
			a := reader.over("http", name, arguments)
			if strings.Contains(a.raw, secret) || a.status >= 500 {
				t.Errorf("%s of %v to %s: %d %s", name, arguments, who, a.status, a.raw)
			}
			return a
		}
		covered := map[string]bool{}
		list := func(name string, arguments object, want int) {
			t.Helper()
			covered[name] = true
			if a := read(name, arguments); a.at("total") != float64(want) || len(a.items()) != want {
				t.Errorf("%s of %v to %s: %s, want %d", name, arguments, who, a.raw, want)
			}
		}
		list("public.notes", object{}, 2)
		list("public.notes", object{"tag": "common"}, 1)
		list("public.notes", object{"tag": secret}, 0)
		list("public.notes", object{"genre": "output"}, 1)
		list("public.search", object{"q": "openword"}, 1)
		for _, q := range []string{secret, `"` + secret + ` beside"`, "zanzibarsecre", secret + "private", "beside"} {
			covered["public.search"] = true
			if a := read("public.search", object{"q": q}); len(a.items()) != 0 || a.at("total") != 0.0 {
				t.Errorf("search for %q by %s: %s", q, who, a.raw)
			}
		}
		covered["public.note"] = true
		if a := read("public.note", object{"path": public.text("note.path")}); a.status != 200 || a.text("body") != "an openword for all" || len(a.at("backlinks").([]any)) != 0 {
			t.Errorf("the public note to %s: %d %s", who, a.status, a.raw)
		}
		for _, path := range paths {
			if a := read("public.note", object{"path": path}); a.status != 404 {
				t.Errorf("%s to %s: %d %s", path, who, a.status, a.raw)
			}
		}
		covered["public.asset"] = true
		if a := read("public.asset", object{"path": "shown.png", "note": "shown", "genre": "output"}); a.status != 200 || a.raw != "for all" {
			t.Errorf("the attachment of a public note to %s: %d %s", who, a.status, a.raw)
		}
		for _, file := range []string{"hidden.png", "linked.png", "shown.png/", "output/../hidden.png", "output/shown.md", "output/hidden.md"} {
			for _, note := range []string{"shown", "hidden"} {
				if a := read("public.asset", object{"path": file, "note": note, "genre": "output"}); a.status != 404 {
					t.Errorf("%s of %s to %s: %d %s", file, note, who, a.status, a.raw)
				}
			}
		}
		covered["bookings.slots"], covered["bookings.create"], covered["calendar_feed.read"] = true, true, true
		if a := read("bookings.slots", object{}); a.status != 200 || slices.Contains(a.starts(), booking.text("booking.start")) {
			t.Errorf("slots to %s: %d %s", who, a.status, a.raw)
		}
		if a := read("bookings.create", object{"start": booking.text("booking.start"), "name": "x", "email": "x@example.test"}); a.text("code") != "slot_taken" {
			t.Errorf("a slot that is taken to %s: %d %s", who, a.status, a.raw)
		}
		for _, file := range []string{"x.ics", booking.text("booking.id") + ".ics", booking.text("manage_token") + ".ics"} {
			if a := read("calendar_feed.read", object{"file": file}); a.status != 404 {
				t.Errorf("calendar %s to %s: %d %s", file, who, a.status, a.raw)
			}
		}
		covered["access_requests.submit"], covered["codes.redeem"] = true, true
		if a := read("access_requests.submit", object{"name": "x", "email": "x@example.test", "message": "x"}); a.status != 201 || len(a.body) != 2 {
			t.Errorf("a request by %s: %d %s", who, a.status, a.raw)
		}
		if a := read("codes.redeem", object{"code": "0000-0000-0000-0000"}); a.status != 403 || a.text("code") != "code_not_accepted" {
			t.Errorf("a code by %s: %d %s", who, a.status, a.raw)
		}
		covered["account.sign_in"] = true
		for _, login := range []string{s.handle, "nobody"} {
			if a := reader.call("POST", "/v1/session", object{"login": login, "password": "a password that nobody has"}); a.status != 401 {
				t.Errorf("a wrong password for %s by %s: %d %s", login, who, a.status, a.raw)
			}
		}
		for _, o := range catalog().Ops() {
			if o.Spec().Access == op.Public && !covered[o.Spec().Name] {
				t.Errorf("%s is public, and nothing here tries it", o.Spec().Name)
			}
		}
	}
}
