package apigw

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
)

// The limits of an HTTP API's request body and of a function's event and answer.
const (
	maxBody  = 10 << 20
	maxEvent = 6 << 20
)

// Gateway is an API Gateway HTTP API with the one stage $default: it turns a
// request into the JSON of an event, has invoke run the function, and turns the
// JSON that comes back into the answer. Bodies above 10 MiB and events above
// 6 MiB are refused with 413. An error of invoke, and an answer that is none or
// above 6 MiB, is logged and a problem: 503 if the context ended, else 500.
func Gateway(invoke func(ctx context.Context, event []byte) (response []byte, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := op.RequestID(r)
		if err := exchange(w, r, id, invoke); err != nil {
			new(op.Server).Log(r.Context(), "gateway", auth.Caller{}, id, err)
			w.Header().Set(op.RequestIDHeader, id)
			op.WriteProblem(w, id, err)
		}
	})
}

func exchange(w http.ResponseWriter, r *http.Request, id string, invoke func(context.Context, []byte) ([]byte, error)) error {
	tooLarge := fault.New(fault.TooLarge, "body_too_large", "The body is larger than the gateway takes.")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge
	case err != nil:
		return &fault.Fault{Kind: fault.Invalid, Code: "incomplete_body", Detail: "The body ended early.", Err: err}
	}
	event, err := json.Marshal(eventOf(r, body, id))
	if err != nil {
		return err
	}
	if len(event) > maxEvent {
		return tooLarge
	}
	answer, err := invoke(r.Context(), event)
	if err != nil {
		return err
	}
	var e events.APIGatewayV2HTTPResponse
	if len(answer) > maxEvent {
		return errors.New("apigw: the answer is larger than a function may give")
	}
	if err := json.Unmarshal(answer, &e); err != nil {
		return err
	}
	if e.StatusCode < 200 || e.StatusCode > 599 {
		return errors.New("apigw: the answer has no status")
	}
	out := []byte(e.Body)
	if e.IsBase64Encoded {
		if out, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return err
		}
	}
	h := w.Header()
	for name, value := range e.Headers {
		h.Set(name, value)
	}
	for _, cookie := range e.Cookies {
		h.Add("Set-Cookie", cookie)
	}
	bodiless := e.StatusCode == http.StatusNoContent || e.StatusCode == http.StatusNotModified
	if r.Method != http.MethodHead && !bodiless {
		h.Set("Content-Length", strconv.Itoa(len(out)))
	}
	w.WriteHeader(e.StatusCode)
	if !bodiless {
		_, _ = w.Write(out)
	}
	return nil
}

func eventOf(r *http.Request, body []byte, id string) *events.APIGatewayV2HTTPRequest {
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	headers := lower(r.Header)
	headers["host"] = r.Host
	headers["content-length"] = strconv.Itoa(len(body))
	if before := headers["x-forwarded-for"]; before != "" {
		headers["x-forwarded-for"] = before + ", " + source
	} else {
		headers["x-forwarded-for"] = source
	}
	headers["x-forwarded-proto"] = "http"
	headers["x-forwarded-port"] = port
	if r.TLS != nil {
		headers["x-forwarded-proto"] = "https"
	}
	now := time.Now().UTC()
	e := &events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default",
		RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery,
		Headers: headers,
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: "$default", Stage: "$default", RequestID: id,
			AccountID: "000000000000", APIID: "local",
			DomainName: host, DomainPrefix: strings.Split(host, ".")[0],
			Time: now.Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method: r.Method, Path: r.URL.Path, Protocol: r.Proto, SourceIP: source, UserAgent: r.UserAgent(),
			},
		},
	}
	for _, header := range r.Header["Cookie"] {
		for cookie := range strings.SplitSeq(header, ";") {
			if cookie = strings.TrimSpace(cookie); cookie != "" {
				e.Cookies = append(e.Cookies, cookie)
			}
		}
	}
	for name, values := range r.URL.Query() {
		if e.QueryStringParameters == nil {
			e.QueryStringParameters = map[string]string{}
		}
		e.QueryStringParameters[name] = strings.Join(values, ",")
	}
	if isText(r.Header, body) {
		e.Body = string(body)
	} else {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return e
}
