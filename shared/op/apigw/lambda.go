// Package apigw translates between net/http and the events that an API Gateway
// HTTP API exchanges with a Lambda function (payload format 2.0), in both
// directions: Lambda for a deployed function, Gateway for everything that runs
// the same handler locally.
package apigw

import (
	"context"
	"encoding/base64"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"standmeet/shared/op"
)

// Lambda is h as the handler of a Lambda function.
//
// The path is taken as the HTTP API hands it over: already decoded, behind the
// name of the stage unless that is $default. So an id may hold %, #, ? and any
// letter, but a slash in it splits the path. A stage must not be named like the
// first segment of a route.
func Lambda(h http.Handler) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		r, err := request(ctx, &e)
		if err != nil {
			return events.APIGatewayV2HTTPResponse{}, err
		}
		w := recorder{header: http.Header{}}
		h.ServeHTTP(&w, r)
		return w.response(r.Method), nil
	}
}

func request(ctx context.Context, e *events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	path := e.RawPath
	if stage := e.RequestContext.Stage; stage != "" && stage != "$default" {
		if rest, ok := strings.CutPrefix(path, "/"+stage); ok && (rest == "" || rest[0] == '/') {
			path = rest
		}
	}
	if path == "" {
		path = "/"
	}
	body := e.Body
	if e.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, err
		}
		body = string(decoded)
	}
	r := (&http.Request{
		Method: e.RequestContext.HTTP.Method,
		URL:    &url.URL{Path: path, RawQuery: e.RawQueryString},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        make(http.Header, len(e.Headers)+2),
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
		Host:          e.RequestContext.DomainName,
		RemoteAddr:    e.RequestContext.HTTP.SourceIP,
	}).WithContext(ctx)
	r.RequestURI = r.URL.RequestURI()
	for name, value := range e.Headers {
		r.Header.Set(name, value)
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	// net/http keeps these outside the headers, and the body's true length is known
	r.Header.Del("Host")
	r.Header.Del("Content-Length")
	if len(e.Cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	if id := e.RequestContext.RequestID; id != "" {
		r.Header.Set(op.RequestIDHeader, id)
	}
	return r, nil
}

// recorder gathers an answer.
type recorder struct {
	header http.Header
	// sent is the header as it was when the status was written: later changes
	// don't count, as with net/http.
	sent   http.Header
	status int
	body   []byte
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	// 1xx are notes on the way to the answer, which can't be sent here
	if w.status == 0 && status >= 200 {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, b...)
	return len(b), nil
}

func (w *recorder) response(method string) events.APIGatewayV2HTTPResponse {
	w.WriteHeader(http.StatusOK)
	h := w.sent
	if _, ok := h["Content-Type"]; !ok && len(w.body) > 0 {
		h.Set("Content-Type", http.DetectContentType(w.body))
	}
	if method == http.MethodHead {
		if len(w.body) > 0 && h.Get("Content-Length") == "" {
			h.Set("Content-Length", strconv.Itoa(len(w.body)))
		}
		w.body = nil
	} else {
		h.Del("Content-Length") // the gateway counts for itself
	}
	out := events.APIGatewayV2HTTPResponse{
		StatusCode: w.status, Headers: make(map[string]string, len(h)), Cookies: h["Set-Cookie"],
	}
	for name, values := range h {
		if name != "Set-Cookie" {
			// the format has one value for each name; a list means the same (RFC 9110, section 5.3)
			out.Headers[name] = strings.Join(values, ", ")
		}
	}
	if isText(h, w.body) {
		out.Body = string(w.body)
	} else {
		out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(w.body), true
	}
	return out
}

// isText reports whether a body survives as a JSON string.
func isText(h http.Header, body []byte) bool {
	if h.Get("Content-Encoding") != "" || !utf8.Valid(body) {
		return false
	}
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return len(body) == 0 || strings.HasPrefix(media, "text/") || media == "application/json" || media == "application/javascript" ||
		strings.HasSuffix(media, "+json") || strings.HasSuffix(media, "xml")
}

// lower gives headers as the gateway hands them over.
func lower(h http.Header) map[string]string {
	out := make(map[string]string, len(h)+4)
	for name, values := range h {
		out[strings.ToLower(name)] = strings.Join(values, ",")
	}
	maps.DeleteFunc(out, func(name, _ string) bool { return name == "cookie" })
	return out
}
