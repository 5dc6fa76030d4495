// Package fault is the one typed error of the house. Inside, an error is an
// error; whatever a caller may learn of it is a Fault, and each edge (HTTP, MCP,
// the work queue) reads the same Fault.
package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Kind says whose turn it is after a failure. Its value is the HTTP status
// code; the zero Kind counts as Internal.
type Kind int

const (
	Invalid            Kind = http.StatusBadRequest
	Unauthorized       Kind = http.StatusUnauthorized
	Forbidden          Kind = http.StatusForbidden
	NotFoundKind       Kind = http.StatusNotFound
	MethodNotAllowed   Kind = http.StatusMethodNotAllowed
	NotAcceptable      Kind = http.StatusNotAcceptable
	Conflict           Kind = http.StatusConflict
	PreconditionFailed Kind = http.StatusPreconditionFailed
	TooLarge           Kind = http.StatusRequestEntityTooLarge
	UnsupportedMedia   Kind = http.StatusUnsupportedMediaType
	Unprocessable      Kind = http.StatusUnprocessableEntity
	RateLimited        Kind = http.StatusTooManyRequests
	Internal           Kind = http.StatusInternalServerError
	Unavailable        Kind = http.StatusServiceUnavailable
)

// Fault is a failure as its caller may see it, with the cause that they may not.
type Fault struct {
	Kind Kind
	// Code is stable snake_case that a program may compare.
	Code string
	// Detail is one plain sentence for a person.
	Detail string
	// Fields are the parts of the request that are at fault, if it is about parts.
	Fields []Field
	// RetryAfter is when a repetition may succeed; 0 says nothing, except that an
	// Unavailable or RateLimited fault is always answered with at least a second.
	RetryAfter time.Duration
	// Err is the cause. It is logged and never shown.
	Err error
}

// Field names one part of a request and what is wrong with it.
type Field struct {
	// Name is the path of the field, for example "tags[2]".
	Name string `json:"field"`
	// Code is stable snake_case.
	Code string `json:"code"`
	// Detail is one plain sentence.
	Detail string `json:"detail"`
}

// New is a fault without fields or cause.
func New(kind Kind, code, detail string) *Fault {
	return &Fault{Kind: kind, Code: code, Detail: detail}
}

// InvalidField is an Invalid fault, code "invalid_request", about one field.
func InvalidField(name, code, detail string) *Fault {
	return &Fault{Kind: Invalid, Code: "invalid_request", Detail: detail, Fields: []Field{{name, code, detail}}}
}

// NotFound says that there is no such thing, or that it isn't the caller's to
// see: code "not_found". what names it in the sentence, for example "note".
func NotFound(what string) *Fault {
	return New(NotFoundKind, "not_found", "There is no such "+what+".")
}

// From gives the Fault in err's tree. An ended context is Unavailable,
// "timeout"; any other error is Internal, "internal", with err as its cause.
// From(nil) is nil.
func From(err error) *Fault {
	var f *Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Fault{Kind: Unavailable, Code: "timeout", Detail: "The request took too long and was given up. Try again.", Err: err}
	}
	return &Fault{Kind: Internal, Code: "internal", Detail: "Something went wrong on our side. It has been recorded.", Err: err}
}

// Error is for logs: it holds the cause.
func (f *Fault) Error() string {
	if f.Err != nil {
		return fmt.Sprintf("%s: %s: %v", f.Code, f.Detail, f.Err)
	}
	return f.Code + ": " + f.Detail
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Status is the HTTP status code.
func (f *Fault) Status() int {
	if f.Kind == 0 {
		return int(Internal)
	}
	return int(f.Kind)
}

// RetrySeconds is the value of Retry-After in whole seconds, rounded up; 0 means
// that none is due.
func (f *Fault) RetrySeconds() int {
	s := int((f.RetryAfter + time.Second - 1) / time.Second)
	if s < 1 && (f.Kind == Unavailable || f.Kind == RateLimited) {
		return 1
	}
	return max(s, 0)
}

// Problem is the body of a failed request: RFC 9457, with a stable code and the
// fields at fault. It is application/problem+json on HTTP and the structured
// result of a failed tool call on MCP.
type Problem struct {
	// Type is "/problems/" and the code.
	Type string `json:"type"`
	// Title is the standard phrase of the status.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	// Instance is "/requests/" and the id that the log knows this request by.
	Instance string  `json:"instance,omitempty"`
	Errors   []Field `json:"errors"`
}

// Problem is the public face of the fault. requestID may be empty.
func (f *Fault) Problem(requestID string) Problem {
	p := Problem{
		Type: "/problems/" + f.Code, Title: http.StatusText(f.Status()), Status: f.Status(),
		Code: f.Code, Detail: f.Detail, Errors: f.Fields,
	}
	if requestID != "" {
		p.Instance = "/requests/" + url.PathEscape(requestID)
	}
	if p.Errors == nil {
		p.Errors = []Field{}
	}
	return p
}
