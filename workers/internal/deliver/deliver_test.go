package deliver

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"standmeet/shared/config"
	rules "standmeet/shared/egress"
	"standmeet/workers/internal/egress"
)

const (
	secretNew = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretOld = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	eventID   = "01a0c0de-0000-7000-8000-000000000001"
)

// got is a request as the receiver saw it.
type got struct {
	Header http.Header
	Body   []byte
	At     time.Time
}

// receiver is a real one, with TLS, that keeps what it gets.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []got
}

func receive(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, got{req.Header.Clone(), b, time.Now()})
		r.mu.Unlock()
		answer(w, req)
	}))
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.got...)
}

func (r *receiver) client(o egress.Options) *egress.Client {
	o.Rules = rules.New(config.Egress{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	o.Roots = x509.NewCertPool()
	o.Roots.AddCert(r.Certificate())
	return egress.New(o)
}

func attempt(url string) Attempt {
	return Attempt{URL: url, Secrets: []string{secretNew}, EventID: eventID, Payload: []byte(`{"type":"x"}`)}
}

func send(t *testing.T, c *egress.Client, a Attempt) Result {
	t.Helper()
	r, err := Send(t.Context(), c, a)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case (r.Outcome == Delivered) != (r.Error == ""):
		t.Errorf("outcome %s with error %q", r.Outcome, r.Error)
	case r.Error != "" && !strings.HasSuffix(r.Error, "."):
		t.Errorf("error %q is no sentence", r.Error)
	case (r.Outcome == Later) == r.RetryAt.IsZero():
		t.Errorf("outcome %s, again at %v", r.Outcome, r.RetryAt)
	case r.Duration <= 0:
		t.Errorf("it took %v", r.Duration)
	}
	return r
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		if code != http.StatusNoContent {
			fmt.Fprintf(w, "answer %d", code)
		}
	}
}

func TestReceivers(t *testing.T) {
	t.Parallel()
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	drip := func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			fmt.Fprint(w, ".")
			flush(w)
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
		}
	}
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		outcome  Outcome
		status   int
		response string // a prefix
		words    string // a part of the error
	}{
		"200":       {status(200), Delivered, 200, "answer 200", ""},
		"204":       {status(204), Delivered, 204, "", ""},
		"500":       {status(500), Failed, 500, "answer 500", "answered 500 Internal Server Error."},
		"503":       {status(503), Failed, 503, "answer 503", "answered 503"},
		"503 later": {status(503, "Retry-After", "120"), Later, 503, "answer 503", "come later"},
		"429 later": {status(429, "Retry-After", "120"), Later, 429, "answer 429", "come later"},
		"429":       {status(429), Failed, 429, "answer 429", "answered 429"},
		"408":       {status(408), Failed, 408, "answer 408", "answered 408"},
		"400":       {status(400), Discard, 400, "answer 400", "does not take this event"},
		"404":       {status(404), Discard, 404, "answer 404", "does not take this event"},
		"410":       {status(410), Gone, 410, "answer 410", "no more events"},
		"301":       {status(301, "Location", "https://127.0.0.2/x"), Failed, 301, "answer 301", "to https://127.0.0.2/x; redirects are not followed"},
		"307":       {status(307), Failed, 307, "answer 307", "redirects are not followed"},
		"599":       {status(599), Failed, 599, "answer 599", "answered 599."},
		"hangs":     {hang, Failed, 0, "", "did not answer in time"},
		"drips 200": {drip, Delivered, 200, "...", ""},
		"drips 500": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); drip(w, r) }, Failed, 500, "...", "answered 500"},
		"closes": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			Failed, 0, "", "closed the connection"},
		"closes in the body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "begun")
			flush(w)
			panic(http.ErrAbortHandler)
		}, Delivered, 200, "begun", ""},
		"10 MB": {func(w http.ResponseWriter, _ *http.Request) {
			chunk := bytes.Repeat([]byte("m"), 1<<20)
			for range 10 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, Delivered, 200, strings.Repeat("m", MaxResponse), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receive(t, test.answer)
			begin := time.Now()
			res := send(t, r.client(egress.Options{Timeout: 4 * time.Second}), attempt(r.URL))
			if res.Outcome != test.outcome || res.Status != test.status || !strings.HasPrefix(res.Response, test.response) || !strings.Contains(res.Error, test.words) {
				t.Errorf("%+.120v", res)
			}
			if len(res.Response) > MaxResponse || time.Since(begin) > 15*time.Second {
				t.Errorf("%d bytes after %v", len(res.Response), time.Since(begin))
			}
			if n := len(r.all()); n != 1 {
				t.Errorf("the receiver saw %d requests for one attempt", n)
			}
		})
	}
}

// TestClosedReusedConnection: a connection that serves twice and is then closed
// in place of an answer makes one request for each attempt.
func TestClosedReusedConnection(t *testing.T) {
	t.Parallel()
	var n int
	r := receive(t, func(http.ResponseWriter, *http.Request) {
		if n++; n > 1 {
			panic(http.ErrAbortHandler)
		}
	})
	c := r.client(egress.Options{Timeout: 2 * time.Minute})
	for i, want := range []Outcome{Delivered, Failed} {
		if res := send(t, c, attempt(r.URL)); res.Outcome != want || len(r.all()) != i+1 {
			t.Errorf("attempt %d: %+v, %d requests", i+1, res, len(r.all()))
		}
	}
}

func TestWhatNeverArrives(t *testing.T) {
	t.Parallel()
	r := receive(t, status(200))
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close()
	down := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("down") }}
	stranger := egress.New(egress.Options{Rules: rules.New(config.Egress{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})})
	for name, test := range map[string]struct {
		client *egress.Client
		url    string
		words  string
	}{
		"unresolvable": {r.client(egress.Options{Resolver: down}), "https://hooks.example.org/h", "The name hooks.example.org could not be looked up."},
		"refused":      {egress.New(egress.Options{}), r.URL, "leads back to the server itself"},
		"bad TLS":      {stranger, r.URL, "certificate"},
		"no listener":  {r.client(egress.Options{Timeout: 2 * time.Minute}), "https://" + closed, "refused the connection"},
		"no URL":       {r.client(egress.Options{Timeout: 2 * time.Minute}), "https://\x00", "not a complete one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if res := send(t, test.client, attempt(test.url)); res.Outcome != Failed || res.Status != 0 || !strings.Contains(res.Error, test.words) {
				t.Errorf("%+v", res)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(r.all()); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
	})
}

// TestInterrupted: what ends on our side is no fault of the endpoint.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := receive(t, func(_ http.ResponseWriter, req *http.Request) { cancel(); <-req.Context().Done() })
	res, err := Send(ctx, r.client(egress.Options{Timeout: 2 * time.Minute}), attempt(r.URL))
	if !errors.Is(err, context.Canceled) || res.Outcome != Failed || res.Error != "The exchange was broken off on our side." {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestSecretsThatCannotSign(t *testing.T) {
	t.Parallel()
	r := receive(t, status(200))
	for _, secrets := range [][]string{nil, {""}, {"whsec_"}, {"whsec_%%"}, {secretNew, "not base64"}} {
		a := attempt(r.URL)
		a.Secrets = secrets
		if res, err := Send(t.Context(), r.client(egress.Options{Timeout: 2 * time.Minute}), a); !errors.Is(err, ErrSecrets) || res != (Result{}) {
			t.Errorf("%q: %+v, %v", secrets, res, err)
		} else if len(secrets) > 0 && len(secrets[0]) > 10 && strings.Contains(err.Error(), secrets[0]) {
			t.Error("the error shows a secret")
		}
	}
	if len(r.all()) != 0 {
		t.Error("something was sent unsigned")
	}
}

func TestRetryAfterOfAReceiver(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"90":                   90 * time.Second,
		"1":                    MinLater,
		"99999999999999999999": MaxLater,
		time.Now().Add(3 * time.Minute).UTC().Format(http.TimeFormat):  3 * time.Minute,
		time.Now().Add(240 * time.Hour).UTC().Format(http.TimeFormat):  MaxLater,
		time.Now().Add(-3 * time.Minute).UTC().Format(http.TimeFormat): 0,
		"-5":   0,
		"soon": 0,
		"0":    0,
	} {
		r := receive(t, status(429, "Retry-After", value))
		res := send(t, r.client(egress.Options{Timeout: 2 * time.Minute}), attempt(r.URL))
		if want == 0 {
			if res.Outcome != Failed {
				t.Errorf("%q: %+v, want the normal backoff", value, res)
			}
			continue
		}
		if off := time.Until(res.RetryAt) - want; res.Outcome != Later || off > time.Second || off < -5*time.Second {
			t.Errorf("%q: %+v, %v off", value, res, off)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 3, 26, 8, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "000": 0, "-1": 0, "+1": 0, "1.5": 0, "1e3": 0, "0x10": 0, "1 2": 0, "120, 60": 0, "junk": 0, "NaN": 0, "\u0661\u0662": 0,
		"1": MinLater, "5": 5 * time.Second, "007": 7 * time.Second, "3600": time.Hour, "86400": MaxLater, "86401": MaxLater,
		"9223372036854775807": MaxLater, "9223372036854775808": MaxLater, strings.Repeat("9", 4000): MaxLater,
		"Fri, 26 Mar 2027 08:02:00 GMT":  2 * time.Minute,
		"Friday, 26-Mar-27 08:02:00 GMT": 2 * time.Minute,
		"Fri Mar 26 08:02:00 2027":       2 * time.Minute,
		"Fri, 26 Mar 2027 08:00:01 GMT":  MinLater,
		"Fri, 26 Mar 2027 08:00:00 GMT":  0,
		"Fri, 26 Mar 2027 07:59:59 GMT":  0,
		"Thu, 01 Jan 1970 00:00:00 GMT":  0,
		"Fri, 31 Dec 9999 23:59:59 GMT":  MaxLater,
		"Fri, 26 Mar 2027 08:02:00 CET":  0,
		"2027-03-26T08:02:00Z":           0,
	} {
		if got, ok := retryAfter(value, now); got != want || ok != (want > 0) {
			t.Errorf("%.40q: %v, %v; want %v", value, got, ok, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "-1", "99999999999999999999", "Fri, 26 Mar 2027 08:02:00 GMT", "x"} {
		f.Add(s, int64(0))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		wait, ok := retryAfter(value, time.Unix(unix, 0))
		if ok && (wait < MinLater || wait > MaxLater) || !ok && wait != 0 {
			t.Fatalf("%q: %v, %v", value, wait, ok)
		}
	})
}

func TestClassify(t *testing.T) {
	t.Parallel()
	asks := http.Header{"Retry-After": {"60"}}
	for code := 100; code < 1000; code++ {
		want := Failed
		switch {
		case code/100 == 2:
			want = Delivered
		case code == 410:
			want = Gone
		case code/100 == 4 && code != 408 && code != 429:
			want = Discard
		}
		if o, wait := classify(code, nil, time.Now()); o != want || wait != 0 {
			t.Errorf("%d: %s, %v; want %s", code, o, wait, want)
		}
		if code == 429 || code == 503 {
			want = Later
		}
		if o, wait := classify(code, asks, time.Now()); o != want || (wait == time.Minute) != (want == Later) {
			t.Errorf("%d with Retry-After: %s, %v; want %s", code, o, wait, want)
		}
	}
}

func TestResponseIsText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxResponse-1)
	for in, want := range map[string]string{
		"":                              "",
		"日本":                            "日本",
		"a\x00b":                        "a\uFFFDb",
		"a\xffb":                        "a\uFFFDb",
		long + "b":                      long + "b",
		long + "bc":                     long + "b",
		long + "日本":                     long,
		long[1:] + "日":                  long[1:],
		long[2:] + "日":                  long[2:] + "日",
		long + "\xff\xff":               long, // no room for the sign
		strings.Repeat("\xffa", 3000):   strings.Repeat("\uFFFDa", 1024),
		strings.Repeat("\x00", 5000):    strings.Repeat("\uFFFD", 1365),
		strings.Repeat("\xe6\x97", 100): "\uFFFD",
	} {
		if got := response([]byte(in)[:min(len(in), MaxResponse+1)]); got != want {
			t.Errorf("%d bytes: %d bytes %.20q, want %d", len(in), len(got), got, len(want))
		}
	}
}

func FuzzResponse(f *testing.F) {
	f.Add([]byte("日\x00\xff"), 4000)
	f.Fuzz(func(t *testing.T, body []byte, pad int) {
		if pad < 0 || pad > 2*MaxResponse {
			return
		}
		body = append(bytes.Repeat([]byte("x"), pad), body...)
		kept := response(body[:min(len(body), MaxResponse+1)])
		if len(kept) > MaxResponse || !utf8.ValidString(kept) || strings.Contains(kept, "\x00") {
			t.Fatalf("%d bytes: %q", len(kept), kept)
		}
	})
}

// TestAttemptsOfOneEvent: W4. Id and bytes stay, the time doesn't, and what
// arrives verifies with each secret that signs, and with no other.
func TestAttemptsOfOneEvent(t *testing.T) {
	t.Parallel()
	answers := []int{500, 500, 200, 200, 200}
	var n int
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answers[n]); n++ })
	c := r.client(egress.Options{Timeout: 2 * time.Minute})
	payload := []byte(`{"type":"corpus.note.changed","data":{"title":"<b>&\" 日本"}}`)
	secrets := [][]string{{secretOld}, {secretOld}, {secretOld}, {secretNew, secretOld}, {secretNew}}
	for i := range answers {
		send(t, c, Attempt{URL: r.URL, Secrets: secrets[i], EventID: eventID, Payload: payload})
	}
	all := r.all()
	if len(all) != len(answers) {
		t.Fatalf("%d requests", len(all))
	}
	for i, g := range all {
		if !bytes.Equal(g.Body, payload) || g.Header.Get("webhook-id") != eventID || g.Header.Get("Content-Type") != "application/json" {
			t.Errorf("attempt %d: %s %v", i+1, g.Body, g.Header)
		}
		at, err := strconv.ParseInt(g.Header.Get("webhook-timestamp"), 10, 64)
		if age := g.At.Sub(time.Unix(at, 0)); err != nil || age > 5*time.Second || age < 0 {
			t.Errorf("attempt %d: %v old, %v", i+1, age, err)
		}
		if signed := strings.Fields(g.Header.Get("webhook-signature")); len(signed) != len(secrets[i]) {
			t.Errorf("attempt %d: signatures %q", i+1, signed)
		}
		for _, secret := range []string{secretNew, secretOld} {
			w, err := webhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Contains(strings.Join(secrets[i], " "), secret)
			if err := w.Verify(g.Body, g.Header); (err == nil) != want {
				t.Errorf("attempt %d with %s: %v", i+1, secret, err)
			}
		}
	}
}

func TestGivenTimeIsSigned(t *testing.T) {
	t.Parallel()
	r := receive(t, status(200))
	a := attempt(r.URL)
	a.Time = time.Unix(1_700_000_000, 999)
	send(t, r.client(egress.Options{Timeout: 2 * time.Minute}), a)
	g := r.all()[0]
	w, err := webhooks.NewWebhook(secretNew)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.VerifyIgnoringTimestamp(g.Body, g.Header); err != nil || g.Header.Get("webhook-timestamp") != "1700000000" {
		t.Errorf("%v: %v", g.Header, err)
	}
}

// TestJavaScriptLibraryVerifies what a receiver got, with the official library.
func TestJavaScriptLibraryVerifies(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %v", err)
		}
	}
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "--prefix", dir, "standardwebhooks@1.1.1"); err != nil {
		t.Skipf("skipped: npm cannot install standardwebhooks: %v: %s", err, out)
	}

	r := receive(t, status(200))
	c := r.client(egress.Options{Timeout: 2 * time.Minute})
	type check struct {
		Secret string            `json:"secret"`
		Header map[string]string `json:"headers"`
		Body   string            `json:"body"` // base64
		Want   bool              `json:"want"`
	}
	var checks []check
	for _, payload := range []string{`{"title":"<b>&\" 日本"}`, `{"title":"<b>&\" 日本","n":1.0,"u":"é\u2028"}`, `{}`} {
		for _, secrets := range [][]string{{secretNew}, {secretNew, secretOld}, {secretOld}} {
			send(t, c, Attempt{URL: r.URL, Secrets: secrets, EventID: eventID, Payload: []byte(payload)})
			all := r.all()
			g := all[len(all)-1]
			headers := map[string]string{}
			for name := range g.Header {
				headers[strings.ToLower(name)] = g.Header.Get(name)
			}
			for _, secret := range []string{secretNew, secretOld} {
				want := strings.Contains(strings.Join(secrets, " "), secret)
				checks = append(checks, check{secret, headers, base64.StdEncoding.EncodeToString(g.Body), want})
			}
		}
	}
	spoiled := checks[0]
	spoiled.Body, spoiled.Want = base64.StdEncoding.EncodeToString([]byte(`{"title":"other"}`)), false
	checks = append(checks, spoiled)
	b, err := json.Marshal(checks)
	if err != nil {
		t.Fatal(err)
	}
	script := `
const { Webhook } = require("standardwebhooks");
const checks = JSON.parse(require("fs").readFileSync("checks.json", "utf8"));
let bad = 0;
checks.forEach((c, i) => {
  let got = true, why = "";
  try { new Webhook(c.secret).verify(Buffer.from(c.body, "base64").toString("utf8"), c.headers); } catch (e) { got = false; why = String(e); }
  if (got !== c.want) { bad++; console.log("check", i, "verifies:", got, why); }
});
console.log(checks.length, "checked,", bad, "wrong");
process.exit(bad ? 1 : 0);
`
	for name, content := range map[string][]byte{"checks.json": b, "verify.cjs": []byte(script)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := run("node", "verify.cjs")
	if err != nil || !strings.Contains(out, "19 checked, 0 wrong") {
		t.Errorf("%v: %s", err, out)
	}
}
