package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/telemetry"
)

// envelope is what a JSON-RPC message may need besides a tool's arguments.
const envelope = 1<<20 + 128<<10

// call is one message on its way through the SDK.
type call struct {
	// ctx is the HTTP request's: the SDK detaches handlers from it, and with it
	// would go the deadline of the function and the client that hung up.
	ctx    context.Context
	caller auth.Caller
	info   op.CallInfo
	// receipt of work that a tool's answer left in flight.
	receipt string
	// progressToken of a client that reads a stream and asked to hear of progress.
	progressToken any
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// methods that are offered. What the SDK would answer on behalf of features
// that the endpoint doesn't have (empty lists, a subscription stream that a
// Lambda function would hold open until it is killed) is "method not found".
var methods = []string{
	"initialize", "ping", "server/discover", "tools/list", "tools/call",
	"tasks/get", "tasks/update", "tasks/cancel",
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := op.RequestID(r)
	w.Header().Set(op.RequestIDHeader, id)
	caller, body, err := e.admit(w, r)
	if err != nil {
		e.Server.Log(r.Context(), "mcp", caller, id, err)
		op.WriteProblem(w, id, err)
		return
	}

	streams := acceptsStream(r)
	// What the SDK asks of this header is more than some clients send.
	r.Header.Set("Accept", "application/json, text/event-stream")
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		e.serve(w, r, caller, id, body, streams)
		return
	}
	// Batches existed in revision 2025-03-26 only, which has no version header.
	var batch []json.RawMessage
	if err := json.Unmarshal(body, &batch); err != nil {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeParseError, "The body is not JSON.")
		return
	}
	if v := cmp.Or(r.Header.Get("Mcp-Protocol-Version"), "2025-03-26"); len(batch) == 0 || v > "2025-03-26" {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "Send one JSON-RPC message, not an array.")
		return
	}
	answers := []json.RawMessage{}
	for _, m := range batch {
		one := &buffer{header: http.Header{}}
		e.serve(one, r, caller, id, m, false)
		if one.Len() > 0 {
			answers = append(answers, one.Bytes())
		}
	}
	if len(answers) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	writeJSON(w, http.StatusOK, answers)
}

// admit refuses what is no message of somebody who may send one.
func (e *endpoint) admit(w http.ResponseWriter, r *http.Request) (caller auth.Caller, body []byte, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return caller, nil, fault.New(fault.MethodNotAllowed, "method_not_allowed", "MCP messages are sent with POST. There is no stream to GET and no session to DELETE.")
	}
	if !e.originAllowed(r) {
		return caller, nil, fault.New(fault.Forbidden, "origin_not_allowed", "Pages of this origin may not call this server.")
	}
	// A session does not count: a browser sends its cookie unasked.
	if auth.CredentialsOf(r).Bearer != "" {
		if caller, err = e.Server.Caller(r); err != nil {
			return caller, nil, err
		}
	}
	if caller.Kind != auth.Owner {
		return caller, nil, fault.New(fault.Unauthorized, "unauthorized", "Send an API token: Authorization: Bearer <token>.")
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, e.maxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		err = fault.New(fault.TooLarge, "body_too_large", fmt.Sprintf("The message may have %d bytes at most.", over.Limit))
	case err != nil:
		err = &fault.Fault{Kind: fault.Invalid, Code: "incomplete_body", Detail: "The body ended early.", Err: err}
	}
	return caller, body, err
}

// acceptsStream reports whether the client names event streams among what it
// reads.
func acceptsStream(r *http.Request) bool {
	for _, value := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(value, ",") {
			if t, params, err := mime.ParseMediaType(one); err == nil && t == "text/event-stream" {
				q, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
				return err == nil && q > 0
			}
		}
	}
	return false
}

// serve answers one message: with a stream if the client reads one and asks to
// hear of progress, else with a JSON document.
func (e *endpoint) serve(w http.ResponseWriter, r *http.Request, caller auth.Caller, id string, body []byte, streams bool) {
	if !json.Valid(body) {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeParseError, "The body is not JSON.")
		return
	}
	msg, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "The body is not a JSON-RPC 2.0 message.")
		return
	}
	if res, ok := msg.(*jsonrpc.Response); ok && res.Result == nil && res.Error == nil {
		writeError(w, http.StatusBadRequest, res.ID.Raw(), jsonrpc.CodeInvalidRequest, "The message has no method, and is no response: it has neither result nor error.")
		return
	}
	req, ok := msg.(*jsonrpc.Request)
	if !ok || !req.IsCall() { // nothing here is kept that a notification or a response could be about
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if !slices.Contains(methods, req.Method) {
		status := http.StatusOK
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" { // SEP-2575
			status = http.StatusNotFound
		}
		writeError(w, status, req.ID.Raw(), jsonrpc.CodeMethodNotFound, "There is no method "+strconv.Quote(req.Method)+".")
		return
	}
	if v := r.Header.Get("Mcp-Protocol-Version"); v >= "2026-07-28" && strings.HasPrefix(req.Method, "tasks/") {
		// The SDK checks the mirrored headers of the methods that it knows.
		var p taskParams
		if json.Unmarshal(req.Params, &p) == nil && p.TaskID != r.Header.Get("Mcp-Name") {
			writeError(w, http.StatusBadRequest, req.ID.Raw(), sdk.CodeHeaderMismatch, "The header Mcp-Name has to be params.taskId.")
			return
		}
	}
	c := &call{ctx: telemetry.WithTraceparent(r.Context(), r.Header.Get("Traceparent")), caller: caller, info: op.CallInfo{Face: "mcp", RequestID: id}}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	r.Body = io.NopCloser(bytes.NewReader(body))
	out := &rpcErrors{ResponseWriter: w, id: req.ID.Raw(), method: req.Method}
	rpc := e.rpc
	if streams && req.Method == "tools/call" {
		var p sdk.CallToolParamsRaw
		if json.Unmarshal(req.Params, &p) == nil {
			if c.progressToken = p.GetProgressToken(); c.progressToken != nil {
				rpc = e.stream
			}
		}
	}
	rpc.ServeHTTP(out, r)
	out.flush()
}

// originAllowed is the check that the transport specification asks for against
// DNS rebinding. A page of the host that was asked is at home, except where the
// host is this machine under a stranger's name.
func (e *endpoint) originAllowed(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(e.AllowedOrigins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) &&
		(loopback(r.Host) || !loopback(r.RemoteAddr))
}

func loopback(hostport string) bool {
	host := hostOf(hostport)
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// hostOf drops the port, if there is one.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func writeError(w http.ResponseWriter, status int, id any, code int64, message string) {
	writeJSON(w, status, rpcError(id, code, message))
}

func rpcError(id any, code int64, message string) map[string]any {
	return map[string]any{
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message},
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

// misfit finds the SDK's refusals of params that it could not decode, which name
// Go types. In the text of a result these quotes would be escaped.
var misfit = regexp.MustCompile(`"error":\{"code":-?\d+,"message":"[^"]*\bunmarshaling \\"`)

// rpcErrors turns the SDK's plain-text refusals of a call into JSON-RPC errors,
// puts its refusal of params in our words, and lets everything else through as it
// is written.
type rpcErrors struct {
	http.ResponseWriter
	id     any
	method string
	status int
	text   bytes.Buffer
}

func (w *rpcErrors) WriteHeader(status int) {
	if t, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type")); status >= 400 && t == "text/plain" {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *rpcErrors) Write(b []byte) (int, error) {
	if w.status != 0 {
		return w.text.Write(b)
	}
	if misfit.Match(b) {
		return len(b), json.NewEncoder(w.ResponseWriter).Encode(rpcError(w.id, jsonrpc.CodeInvalidParams, "The params are not what "+w.method+" takes: an object with fields of the right types."))
	}
	return w.ResponseWriter.Write(b)
}

func (w *rpcErrors) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *rpcErrors) flush() {
	if w.status == 0 {
		return
	}
	code := int64(jsonrpc.CodeInvalidRequest)
	if w.status >= 500 {
		code = jsonrpc.CodeInternalError
	}
	w.Header().Del("X-Content-Type-Options")
	writeError(w.ResponseWriter, w.status, w.id, code, strings.TrimSpace(w.text.String()))
}

// buffer is the response to one message of a batch.
type buffer struct {
	bytes.Buffer
	header http.Header
}

func (b *buffer) Header() http.Header { return b.header }
func (b *buffer) WriteHeader(int)     {}
