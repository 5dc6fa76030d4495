// Package op declares an operation once. From one Spec and one typed handler
// come the HTTP route, the Lambda function, the MCP tool with its schemas, the
// OpenAPI entry and the line of the function manifest.
//
// The input type is the contract. Its struct tags say what a field is called
// and what it may hold, and both the published schemas and the decoder are
// compiled from them, so what a schema says is what is enforced:
//
//	json:"name"        the field's name on every face; omitempty or omitzero makes it optional
//	path:"id"          taken from the HTTP path; a value that can't be an id is not_found
//	query:"q"          taken from the HTTP query under that name; a GET, HEAD or DELETE
//	                   takes every other field from the query under its json name
//	header:"If-Match"  taken from that HTTP header
//	jsonschema:"…"     the description
//	enum:"a,b" minLength maxLength (code points) minimum maximum maxItems default
//
// On a list the string and number rules hold for each item. A pointer or an Opt
// is optional. Decoding is strict, as the codes of Operation.Call say.
package op

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"standmeet/shared/auth"
)

// Access says who may call an operation. The zero Access is Owner.
type Access int

const (
	// Owner operations want an owner who holds the scope.
	Owner Access = iota
	// Public operations take anyone; a caller who is known is still told to the handler.
	Public
	// Guest operations take an owner who holds the scope, and a visitor who proves
	// to the handler that it is theirs. The handler asks Call.Owner unless the
	// visitor's proof is there.
	Guest
)

// String is the word that the manifest uses.
func (a Access) String() string {
	switch a {
	case Public:
		return "public"
	case Guest:
		return "guest"
	case Owner:
	}
	return "owner"
}

// Tool are the MCP annotations of an operation that is a tool.
type Tool struct {
	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

// Spec is all of an operation but its code.
type Spec struct {
	// Name is dotted and lower case: "corpus.create".
	Name string
	// Method and Path are the HTTP route, a path in net/http's pattern syntax:
	// "/v1/corpus/{id}", "/v1/public/{handle}/notes/{path...}".
	Method, Path string
	// Status of a success; 0 is 200. 204 answers without a body.
	Status int
	Access Access
	// Scope that an owner's token must hold; empty only for Public.
	Scope string
	// Summary is a heading; Description is what an AI reads before it calls.
	Summary, Description string
	// Tool makes it an MCP tool; nil is none.
	Tool *Tool
	// Uploads are the media types of a body that is one file, which HTTP takes beside
	// JSON, with the other fields in the query; and then also multipart/form-data, where
	// parts with a file name are files and the others fields. See Call.Files.
	Uploads []string
	// MaxBody is the largest HTTP body in bytes; 0 is 1 MiB + 64 KiB.
	MaxBody int64
	// MaxWait above 0 makes the operation one that waits: it takes wait_seconds
	// and Prefer: wait=N, and Call.Wait is never longer.
	MaxWait time.Duration
	// WaitIfAsked makes the default wait 0 instead of MaxWait.
	WaitIfAsked bool
	// Timeout ends the handler's context; 0 is MaxWait + 10 s. At most 29 s, which
	// an API Gateway outlasts.
	Timeout time.Duration
	// Memory of the function in MB; 0 is 256.
	Memory int
	// Produces is the media type of an Out that is a File.
	Produces string
	// Headers of a success over HTTP.
	Headers []Header
	// Failed hears why the transaction of a write failed, once nothing of it is left,
	// and gives the error to answer with: for what counts although nothing was done.
	// nil is for none.
	Failed func(ctx context.Context, c auth.Caller, err error) error
	// Say puts an answer into one sentence for a reader of text; nil says nothing.
	Say func(out any) string
}

// Header is an HTTP header of an answer.
type Header struct {
	Name, Description string
	// Value is made of the handler's Out; "" leaves the header out.
	Value func(out any) string
}

// Operation is a Spec with its handler. It is made by New or NewWrite and safe
// for concurrent use.
type Operation struct {
	spec   Spec
	input  *table
	output *shape
	newIn  func() any
	run    func(ctx context.Context, c auth.Caller, in any) (any, error)

	args, body, result *jsonschema.Schema
	// the answer is a File
	file bool
}

const maxTimeout = 29 * time.Second

var (
	nameSyntax  = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$`)
	scopeSyntax = regexp.MustCompile(`^[a-z][a-z0-9_]*:(read|write)$`)
	pathParam   = regexp.MustCompile(`\{([^{}.]+)(\.\.\.)?\}`)
)

// New declares an operation that handle answers. It panics on a declaration
// that can't work, since no request could repair it.
func New[In, Out any](s Spec, handle func(ctx context.Context, c auth.Caller, in In) (Out, error)) *Operation {
	return newOperation[In, Out](s, false, func(ctx context.Context, c auth.Caller, in any) (any, error) {
		return handle(ctx, c, *in.(*In))
	})
}

func newOperation[In, Out any](s Spec, write bool, run func(context.Context, auth.Caller, any) (any, error)) *Operation {
	o := &Operation{spec: s, newIn: func() any { return new(In) }, run: run}
	if err := o.compile(reflect.TypeFor[In](), reflect.TypeFor[Out](), write); err != nil {
		panic(fmt.Sprintf("op: %s: %v", s.Name, err))
	}
	return o
}

func (o *Operation) compile(in, out reflect.Type, write bool) (err error) {
	s := &o.spec
	if s.Status == 0 {
		s.Status = http.StatusOK
	}
	if s.MaxBody == 0 {
		s.MaxBody = 1<<20 + 64<<10
	}
	if s.Timeout == 0 {
		s.Timeout = s.MaxWait + 10*time.Second
	}
	s.Timeout = min(s.Timeout, maxTimeout)
	if s.Memory == 0 {
		s.Memory = 256
	}
	switch {
	case !nameSyntax.MatchString(s.Name) || len(s.Name) > 64:
		return fmt.Errorf("the name is not dotted lower case of at most 64 letters")
	case s.Method == "" || !strings.HasPrefix(s.Path, "/"):
		return fmt.Errorf("no route")
	case s.Access != Public && !scopeSyntax.MatchString(s.Scope):
		return fmt.Errorf("scope %q is not <family>:read or <family>:write", s.Scope)
	case s.Access == Public && s.Scope != "":
		return fmt.Errorf("a public operation has no scope")
	case s.Summary == "" || s.Tool != nil && s.Description == "":
		return fmt.Errorf("no summary, or a tool without a description")
	case s.MaxWait < 0 || s.MaxWait >= s.Timeout:
		return fmt.Errorf("it would wait longer than its timeout")
	case (out == reflect.TypeFor[File]()) != (s.Produces != ""):
		return fmt.Errorf("it produces a media type and answers with no file, or the other way round")
	case s.Produces != "" && s.Tool != nil:
		return fmt.Errorf("a tool can't answer with a file")
	case in.Kind() != reflect.Struct || out.Kind() != reflect.Struct:
		return fmt.Errorf("input and output must be structs")
	}
	if o.input, err = inputTable(in, s.Method, controlsFor(*s, write)); err != nil {
		return err
	}
	declared := map[string]bool{}
	for _, m := range pathParam.FindAllStringSubmatch(s.Path, -1) {
		declared[m[1]] = true
	}
	for _, f := range o.input.fields {
		if f.in == inPath && !declared[f.param] {
			return fmt.Errorf("%s is not in the path, or twice in the input", f.param)
		}
		if f.in == inPath {
			delete(declared, f.param)
		}
	}
	for name := range declared {
		return fmt.Errorf("the path's {%s} is not in the input", name)
	}
	o.args = o.input.schema(forArgs, func(*field) bool { return true })
	o.body = o.input.schema(forBody, func(f *field) bool { return f.in == inBody })
	if o.file = s.Produces != ""; o.file {
		return nil
	}
	if o.output, err = shapeOf(out, "", nil); err != nil {
		return err
	}
	o.result = o.output.schema(forResult)
	return nil
}

// Spec is the declaration, with its defaults filled in.
func (o *Operation) Spec() Spec { return o.spec }

// InputSchema describes the arguments of the MCP tool: an object without
// references or combinators. It is shared; don't change it.
func (o *Operation) InputSchema() *jsonschema.Schema { return o.args }

// OutputSchema describes the answer in the same way; nil where it is a file.
func (o *Operation) OutputSchema() *jsonschema.Schema { return o.result }

// ToolName is the name of the MCP tool: dotted as the operation's own, or with
// underscores for clients that refuse dots.
func (o *Operation) ToolName(dotted bool) string {
	if dotted {
		return o.spec.Name
	}
	return strings.ReplaceAll(o.spec.Name, ".", "_")
}

// controls are the fields that the framework adds to an input.
type controls struct {
	WaitSeconds    Opt[float64] `json:"wait_seconds,omitzero" minimum:"0"`
	IdempotencyKey Opt[string]  `json:"idempotency_key,omitzero" header:"Idempotency-Key" minLength:"1" maxLength:"255" jsonschema:"Any text of your choice that names this one request. Repeating the request with the same key gives the first answer again and does nothing twice."`
}

func controlsFor(s Spec, write bool) map[string]string {
	use := map[string]string{}
	if s.MaxWait > 0 {
		most, def := seconds(s.MaxWait), seconds(s.MaxWait)
		if s.WaitIfAsked {
			def = "0"
		}
		use["wait_seconds"] = fmt.Sprintf("How many seconds to wait for the work to finish, %s at most and %s by default; 0 answers at once.", most, def)
	}
	if write {
		use["idempotency_key"] = ""
	}
	return use
}

func seconds(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", math.Round(d.Seconds()*10)/10), ".0")
}
