package mail

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// amazon is SES as its API is described, on this machine.
type amazon struct {
	*httptest.Server
	answer http.HandlerFunc
	mu     sync.Mutex
	calls  []captured
}

func serveSES(t *testing.T) *amazon {
	t.Helper()
	a := &amazon{answer: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"MessageId":"0100-0000"}`))
	}}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *amazon) serve(w http.ResponseWriter, r *http.Request) {
	var call struct {
		FromEmailAddress string
		Destination      struct{ ToAddresses, CcAddresses, BccAddresses []string }
		Content          struct{ Raw struct{ Data []byte } }
	}
	err := json.NewDecoder(r.Body).Decode(&call)
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v2/email/outbound-emails" ||
		!strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/") || !strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/ses/") {
		http.Error(w, "not a call that SES knows", http.StatusTeapot)
		return
	}
	a.mu.Lock()
	to := append(append(call.Destination.ToAddresses, call.Destination.CcAddresses...), call.Destination.BccAddresses...)
	a.calls = append(a.calls, captured{from: call.FromEmailAddress, to: to, raw: call.Content.Raw.Data})
	a.mu.Unlock()
	a.answer(w, r)
}

func (a *amazon) captured() []captured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

func (a *amazon) sender(t *testing.T) *SES {
	t.Helper()
	s, err := NewSES(t.Context(), SESOptions{
		From: from, Region: "eu-west-1", Endpoint: a.URL,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret-of-ours"}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What SES answers about the message is final; about us, our account or itself
// it passes. Either way it is asked once: River tries again.
func TestSESClassification(t *testing.T) {
	refusal := func(status int, kind, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Amzn-ErrorType", kind)
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
		}
	}
	raw := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		permanent bool
	}{
		"content":            {refusal(400, "MessageRejected", "Message rejected."), true},
		"with a namespace":   {refusal(400, "MessageRejected:http://internal.amazon.com/coral/com.amazonaws.sesv2/", "Message contains a virus."), true},
		"type in the body":   {raw(400, `{"__type":"com.amazonaws.sesv2#BadRequestException","message":"Illegal address"}`), true},
		"recipient":          {refusal(400, "BadRequestException", "Missing final '@domain'"), true},
		"sandbox":            {refusal(400, "MessageRejected", "Email address is not verified. The following identities failed the check in region EU-WEST-1: ada@example.test"), false},
		"rate":               {refusal(429, "TooManyRequestsException", "Too Many Requests"), false},
		"throttled":          {refusal(400, "ThrottlingException", "Rate exceeded"), false},
		"throttled, old":     {refusal(400, "Throttling", "Maximum sending rate exceeded."), false},
		"quota":              {refusal(400, "LimitExceededException", "Daily message quota exceeded."), false},
		"paused":             {refusal(400, "SendingPausedException", "Sending is paused for this account."), false},
		"suspended":          {refusal(400, "AccountSuspendedException", "The account is suspended."), false},
		"MAIL FROM":          {refusal(400, "MailFromDomainNotVerifiedException", "The MX record is missing."), false},
		"no such identity":   {refusal(404, "NotFoundException", "Not found."), false},
		"no permission":      {refusal(403, "AccessDeniedException", "User is not authorized to perform: ses:SendEmail"), false},
		"wrong key":          {refusal(403, "InvalidSignatureException", "The signature does not match."), false},
		"expired key":        {refusal(403, "ExpiredTokenException", "The security token is expired."), false},
		"its own fault":      {refusal(500, "InternalFailure", ""), false},
		"unavailable":        {raw(503, ""), false},
		"a proxy's page":     {raw(502, "<html>Bad gateway</html>"), false},
		"refused by a proxy": {raw(403, "<html>MessageRejected</html>"), false},
		"unknown refusal":    {raw(400, "{}"), false},
		"not JSON":           {raw(200, "<html>Welcome to the airport</html>"), false},
		"empty":              {raw(200, ""), false},
		"no id":              {raw(200, "{}"), false},
		"cut short":          {raw(200, `{"MessageId":"01`), false},
		"dropped": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := serveSES(t)
			a.answer = c.answer
			err := a.sender(t).Send(t.Context(), message())
			if err == nil || Permanent(err) != c.permanent {
				t.Errorf("permanent %t, want %t: %v", Permanent(err), c.permanent, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret-of-ours") {
				t.Errorf("shows the key: %v", err)
			}
			if n := len(a.captured()); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestSESUnreachable(t *testing.T) {
	a := serveSES(t)
	stalled := make(chan struct{})
	a.answer = func(_ http.ResponseWriter, r *http.Request) {
		close(stalled)
		<-r.Context().Done()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.sender(t).Send(ctx, message()) }()
	<-stalled
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || Permanent(err) {
		t.Errorf("while it is silent: %v", err)
	}
	if n := len(a.captured()); n != 1 {
		t.Errorf("%d calls", n)
	}
	a.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := a.sender(t).Send(short, message()); !errors.Is(err, context.DeadlineExceeded) || Permanent(err) {
		t.Errorf("out of time: %v", err)
	}

	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := &amazon{Server: &httptest.Server{URL: "http://" + gone.Addr().String()}}
	_ = gone.Close()
	if err := nobody.sender(t).Send(t.Context(), message()); err == nil || Permanent(err) {
		t.Errorf("nobody is there: %v", err)
	}

	keyless, err := NewSES(t.Context(), SESOptions{From: from, Region: "eu-west-1", Endpoint: a.URL,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no credentials on this machine")
		})})
	if err != nil {
		t.Fatal(err)
	}
	if err := keyless.Send(t.Context(), message()); err == nil || Permanent(err) || !strings.Contains(err.Error(), "no credentials on this machine") {
		t.Errorf("without a key: %v", err)
	}
	m := message()
	m.To.Email = "Eve <x@b.test>"
	before := len(a.captured())
	if err := a.sender(t).Send(t.Context(), m); !Permanent(err) || len(a.captured()) != before {
		t.Errorf("no address: %v", err)
	}
}
