package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"standmeet/shared/auth"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

// asMain in the environment makes the test binary the program itself.
const asMain = "STANDMEET_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// runtime is Lambda's Runtime API: it hands out events and takes the answers.
type runtime struct {
	events  chan []byte
	answers chan []byte
}

func (r *runtime) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case strings.HasSuffix(req.URL.Path, "/invocation/next"):
		select {
		case event := <-r.events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "1")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", "9999999999999")
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn")
			_, _ = w.Write(event)
		case <-req.Context().Done():
		}
	default:
		body, err := io.ReadAll(req.Body)
		if err != nil || !strings.HasSuffix(req.URL.Path, "/response") {
			body = []byte(`{"statusCode":0,"body":"` + req.URL.Path + `"}`)
		}
		r.answers <- body
		w.WriteHeader(http.StatusAccepted)
	}
}

// function runs the program as the function of that name.
func function(t *testing.T, name, database string) *runtime {
	t.Helper()
	r := &runtime{events: make(chan []byte), answers: make(chan []byte, 1)}
	api := httptest.NewServer(r)
	t.Cleanup(api.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = []string{asMain + "=1", "_HANDLER=" + name, "DATABASE_URL=" + database, "AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(api.URL, "http://")}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		api.CloseClientConnections()
	})
	return r
}

func (r *runtime) invoke(t *testing.T, method, path, token, body string) events.APIGatewayV2HTTPResponse {
	t.Helper()
	var e events.APIGatewayV2HTTPRequest
	e.RawPath, e.Body, e.RequestContext.HTTP.Method = path, body, method
	e.Headers = map[string]string{"authorization": "Bearer " + token, "content-type": "application/json"}
	event, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	timeout := time.After(30 * time.Second)
	select {
	case r.events <- event:
	case <-timeout:
		t.Fatal("it asks for no event")
	}
	var out events.APIGatewayV2HTTPResponse
	select {
	case answer := <-r.answers:
		if err := json.Unmarshal(answer, &out); err != nil {
			t.Fatal(err)
		}
	case <-timeout:
		t.Fatal("no answer")
	}
	return out
}

func owner(t *testing.T, db *pg.DB) (token string) {
	t.Helper()
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		p, err := auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: "me", Email: "me@example.test"})
		if err != nil {
			return err
		}
		_, token, err = auth.CreateToken(t.Context(), tx, p.ID, auth.Token{Name: "t", Scopes: []string{"*"}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A function in Lambda's own protocol: it answers its operation and no other,
// and when its answer has left nothing is under way that a freeze could hold.
func TestFunction(t *testing.T) {
	url := pgtest.URL(t)
	db := pgtest.Open(t, url, pg.Options{})
	token := owner(t, db)
	get := function(t, "account.get", url)
	if a := get.invoke(t, "GET", "/v1/account", token, ""); a.StatusCode != http.StatusOK || !strings.Contains(a.Body, `"handle":"me"`) {
		t.Errorf("%+v", a)
	}
	var used *time.Time
	if err := db.QueryRow(t.Context(), `SELECT last_used_at FROM tokens`).Scan(&used); err != nil || used == nil {
		t.Errorf("the use of the token was left to a later request: %v, %v", used, err)
	}
	if a := get.invoke(t, "GET", "/v1/tokens", token, ""); a.StatusCode != http.StatusNotFound {
		t.Errorf("%+v", a)
	}

	mail := function(t, "mail.send_test", url)
	a := mail.invoke(t, "POST", "/v1/mail/send-test", token, `{"wait_seconds":0.2}`)
	if a.StatusCode != http.StatusOK || !strings.Contains(a.Body, `"ended":"timeout"`) {
		t.Errorf("%+v", a)
	}
	var listening int
	if err := db.QueryRow(t.Context(), `
		SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ILIKE 'LISTEN%'`).Scan(&listening); err != nil || listening != 0 {
		t.Errorf("%d connections listen after the answer (%v)", listening, err)
	}
}

// Every endpoint by its name, as one function each.
func TestEndpointsOfNoOperation(t *testing.T) {
	url := pgtest.URL(t)
	token := owner(t, pgtest.Open(t, url, pg.Options{}))
	for name, c := range map[string]struct{ method, path, body, want string }{
		"mcp":     {"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, `"account_get"`},
		"openapi": {"GET", "/openapi.json", "", `"openapi": "3.1.0"`},
		"sign_in": {"GET", "/sign-in", "", "<h1>Sign in</h1>"},
		"catalog": {"GET", "/v1/tokens", "", `"total":1`},
	} {
		if a := function(t, name, url).invoke(t, c.method, c.path, token, c.body); a.StatusCode != http.StatusOK || !strings.Contains(a.Body, c.want) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestRefusals(t *testing.T) {
	const url = "postgres://u:p@db/x"
	for want, env := range map[string]map[string]string{
		"DATABASE_URL":   {"_HANDLER": "account.get"},
		`"nobody"`:       {"_HANDLER": "nobody", "DATABASE_URL": url},
		`function ""`:    {"DATABASE_URL": url},
		"LOG_LEVEL must": {"_HANDLER": "account.get", "DATABASE_URL": url, "LOG_LEVEL": "loud"},
	} {
		_, err := newHandler(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", env, err)
		}
	}
}

// What a cold start costs before its first connection.
func BenchmarkColdStart(b *testing.B) {
	env := map[string]string{"_HANDLER": "account.get", "DATABASE_URL": "postgres://u:p@127.0.0.1:1/x"}
	for b.Loop() {
		if _, err := newHandler(func(name string) (string, bool) { v, ok := env[name]; return v, ok }); err != nil {
			b.Fatal(err)
		}
	}
}
