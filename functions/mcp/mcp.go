// Package mcp is the MCP endpoint: the operations of the catalog as tools, over
// streamable HTTP without sessions. Every answer is one JSON document, except to a
// client that asks to hear of progress (_meta.progressToken) and reads event
// streams: it gets a stream that ends with the answer. Behind a gateway that
// buffers, such as Lambda's, the stream arrives at once when it has ended.
//
// It speaks every protocol revision of the SDK, 2024-11-05 to 2026-07-28, and
// the Tasks extension io.modelcontextprotocol/tasks in its revision 2026-07-28
// (SEP-2663), see tasks.go. The experimental tasks of revision 2025-11-25
// (tasks/result, tasks/list, a task parameter) were withdrawn by that extension
// and are not offered.
package mcp

import (
	"context"
	"net/http"
	"regexp"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"standmeet/shared/op"
)

// Options configure New.
type Options struct {
	// Server authenticates bearer tokens, bounds waits, logs and flushes.
	Server *op.Server
	// AllowedOrigins are web origins ("https://app.example.com") that may call
	// besides the endpoint's own. A request without Origin comes from no browser
	// and is always allowed.
	AllowedOrigins []string
	// Answers makes task handles possible: by subscriber ("corpus.index"), the
	// operation that takes a receipt as id and answers what the operation that
	// handed it out would answer now. It need not be in the catalog. A receipt of
	// a subscriber that is not here stays a plain receipt.
	Answers map[string]*op.Operation
	// Version is told to clients as the server's version.
	Version string
}

// New returns the endpoint for POST /mcp. Tools are named in the form that every
// client accepts (corpus_create); with ?names=dotted as the operations are
// (corpus.create). Calls may use either spelling at either address. A listing
// holds the tools that the caller's scopes allow.
//
// Errors before a message is understood are HTTP, as problem+json: 401
// unauthorized, 403 origin_not_allowed, 405 method_not_allowed, 413
// body_too_large. A malformed message is a JSON-RPC error. An operation's
// refusal is a tool result with isError, a sentence that names the field, and
// the problem that HTTP answers.
func New(cat op.Catalog, o Options) http.Handler {
	e := &endpoint{Options: o, cat: cat, maxBody: envelope}
	for _, p := range cat.Ops() {
		if p.Spec().Tool != nil {
			e.maxBody = max(e.maxBody, p.Spec().MaxBody+envelope)
		}
	}
	safe, dotted := e.server(false), e.server(true)
	handler := func(documents bool) http.Handler {
		return sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
			if r.URL.Query().Get("names") == "dotted" {
				return dotted
			}
			return safe
		}, &sdk.StreamableHTTPOptions{
			Stateless:           true,
			JSONResponse:        documents,
			MaxRequestBodyBytes: -1, // ServeHTTP has read the body already
			// The SDK compares the socket's address with Host; behind a gateway there
			// is no socket. ServeHTTP does the check from the request.
			DisableLocalhostProtection: true,
		})
	}
	e.rpc, e.stream = handler(true), handler(false)
	return e
}

type endpoint struct {
	Options
	cat     op.Catalog
	rpc     http.Handler // answers with JSON documents
	stream  http.Handler // answers with event streams
	maxBody int64
}

func (e *endpoint) server(dotted bool) *sdk.Server {
	caps := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}
	caps.AddExtension(tasksExtension, nil)
	s := sdk.NewServer(
		&sdk.Implementation{Name: "standmeet", Title: "StandMeet", Version: e.Version},
		&sdk.ServerOptions{
			Instructions: e.spell(rules, dotted),
			Capabilities: caps,
			SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) {
				// A listing depends on the token, and changes only with a deploy.
				c.CacheScope, c.TTLMs = "private", 5*60*1000
			},
		})
	for _, p := range e.cat.Ops() {
		if p.Spec().Tool != nil {
			s.AddTool(e.describe(p, dotted), e.tool(p))
		}
	}
	e.addTasks(s)
	s.AddReceivingMiddleware(e.receive(dotted))
	return s
}

// dottedName is what an operation's name in a text looks like.
var dottedName = regexp.MustCompile(`[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+`)

// spell writes the names of tools in a text as the client sees them.
func (e *endpoint) spell(text string, dotted bool) string {
	return dottedName.ReplaceAllStringFunc(text, func(name string) string {
		if o := e.cat.ByName(name); o != nil && o.Spec().Tool != nil {
			return o.ToolName(dotted)
		}
		return name
	})
}

// rules are what an AI reads before its first call.
const rules = `StandMeet holds its owner's notes (corpus: raw, wiki, output) and the work that follows from them. An answer states only what is committed.

- indexed: true means that search finds this write now. indexed: false means that the note is saved but search may not find it yet. Do not write it again: call tasks.get {"id": index_job_id, "wait_seconds": 20} until its state is completed, then corpus.search. Every other receipt (mail.job_id, job_ids, build_id) is followed in the same way.
- Task states: pending, running and retryable are in progress; completed is done; discarded and cancelled will not happen by themselves (tasks.retry starts again). wait.ended says why a call stopped waiting; anything but observed means: follow the receipt.
- Never tell anybody that something was indexed, sent, delivered, built or published unless a result says so. In progress is "on its way", not "sent".
- Give every write its own idempotency_key. If an answer is lost, or the code is idempotency_in_flight, timeout or unavailable, repeat the same call with the same key and arguments: it happens once and answers the same. Never use a key for another change.
- A refusal is a problem: code says what is wrong, errors[].field where. Correct that field and call again. version_conflict: read with corpus.get, then apply the change to what is there now.
- An argument left out or null changes nothing; "" clears. Copy ids exactly. A list goes on while it has next_cursor: pass it as cursor.`
