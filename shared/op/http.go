package op

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/telemetry"
)

// Server is what operations need around them to be served. The zero Server
// knows no caller: only Public operations answer.
type Server struct {
	// Authenticate tells whose credentials these are. It is only asked about
	// credentials that aren't empty; unknown ones are fault "unauthorized".
	Authenticate func(ctx context.Context, c auth.Credentials) (auth.Caller, error)
	// Limit refuses a caller who is no owner when their address asks too often;
	// nil doesn't.
	Limit func(ctx context.Context, address string) error
	// Logger hears of every failure that is ours; nil is slog.Default.
	Logger *slog.Logger
	// MaxWait bounds the wait of every operation; 0 doesn't, and a negative one
	// allows none.
	MaxWait time.Duration
	// Telemetry records each call; nil doesn't. It is flushed after Flush.
	Telemetry *telemetry.Telemetry
	// Flush, if any, is called after each call, before its answer is handed over:
	// the process may be frozen from then on.
	Flush func(ctx context.Context)
}

// RequestIDHeader carries the id that logs and problems name a request by. One
// that comes with the request is kept.
const RequestIDHeader = "X-Request-Id"

// Caller authenticates a request and adds where it came from. Credentials that
// nobody knows are fault "unauthorized".
func (s *Server) Caller(r *http.Request) (auth.Caller, error) {
	return s.callerBy(r, auth.CredentialsOf(r))
}

// Anyone is Caller for what is public. A cookie comes along by itself: of a
// session that nobody knows, or that has ended, it must not keep anybody from what
// is public, and counts as none. An owner's that has ended leaves the visitor's that
// came with it. An owner's token counts as none too, but not a visitor's: it is
// sent to read more than anybody may, and less would look like all there is.
func (s *Server) Anyone(r *http.Request) (auth.Caller, error) {
	credentials := auth.CredentialsOf(r)
	for {
		caller, err := s.callerBy(r, credentials)
		f := fault.From(err)
		if f == nil || f.Kind != fault.Unauthorized || strings.HasPrefix(credentials.Bearer, auth.VisitorPrefix) {
			return caller, err
		}
		if credentials.Session == "" {
			credentials.Visitor = ""
		}
		credentials.Bearer, credentials.Session = "", ""
	}
}

func (s *Server) callerBy(r *http.Request, credentials auth.Credentials) (auth.Caller, error) {
	var caller auth.Caller
	if credentials != (auth.Credentials{}) && s.Authenticate != nil {
		var err error
		if caller, err = s.Authenticate(r.Context(), credentials); err != nil {
			return auth.Caller{}, err
		}
	}
	if credentials.Session != "" || credentials.Visitor != "" {
		// a browser sends the cookie along whoever made it send the request
		if err := http.NewCrossOriginProtection().Check(r); err != nil {
			return auth.Caller{}, &fault.Fault{Kind: fault.Forbidden, Code: "cross_origin", Err: err,
				Detail: "A session can't be used from another site."}
		}
	}
	caller.RemoteAddr = r.RemoteAddr
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		caller.RemoteAddr = host
	}
	return caller, nil
}

// Admit refuses a caller who is no owner when their address asks too often.
func (s *Server) Admit(ctx context.Context, caller auth.Caller) error {
	if caller.Kind == auth.Owner || s.Limit == nil {
		return nil
	}
	return s.Limit(ctx, caller.RemoteAddr)
}

// Call is o.Call for a face other than HTTP: it bounds the wait, logs a failure
// of ours, and flushes.
func (s *Server) Call(ctx context.Context, o *Operation, caller auth.Caller, args json.RawMessage, info CallInfo) (Result, error) {
	info.MaxWait = s.MaxWait
	ctx, span := s.Telemetry.Tool(ctx, o.spec.Name)
	res, err := o.Call(ctx, caller, args, info)
	span.End(caller.OwnerID, res.Status, err)
	s.Log(ctx, o.spec.Name, caller, info.RequestID, err)
	s.flush(ctx)
	return res, err
}

func (s *Server) flush(ctx context.Context) {
	if s.Flush != nil {
		s.Flush(ctx)
	}
	s.Telemetry.Flush(ctx)
}

// Log records err if it is a failure of ours, with the cause that no caller is
// shown. A caller's own mistakes, and nil, are not logged.
func (s *Server) Log(ctx context.Context, operation string, caller auth.Caller, requestID string, err error) {
	f := fault.From(err)
	if f == nil || f.Status() < 500 || errors.Is(err, context.Canceled) {
		return
	}
	attrs := []slog.Attr{
		slog.String("operation", operation), slog.String("owner", caller.OwnerID.String()),
		slog.String("request_id", requestID), slog.String("code", f.Code),
	}
	if f.Err != nil {
		attrs = append(attrs, slog.String("error", f.Err.Error()))
	}
	var p *panicked
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	level := slog.LevelError
	if f.Kind == fault.Unavailable {
		level = slog.LevelWarn
	}
	logger := s.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, level, "operation failed", attrs...)
}

// WriteProblem answers with the problem of err: application/problem+json, with
// Retry-After where it is due and WWW-Authenticate on a 401.
func WriteProblem(w http.ResponseWriter, requestID string, err error) {
	f := fault.From(err)
	body, err := json.Marshal(f.Problem(requestID))
	if err != nil {
		body = nil // it holds strings only
	}
	h := w.Header()
	if s := f.RetrySeconds(); s > 0 {
		h.Set("Retry-After", strconv.Itoa(s))
	}
	if f.Kind == fault.Unauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, f.Status(), "application/problem+json", body)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if status != http.StatusNoContent {
		h.Set("Content-Type", contentType)
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_, _ = w.Write(body)
	}
}

// RequestID gives the id of r: the one that it carries, if it is plain enough
// for a log, else a new one.
func RequestID(r *http.Request) string {
	id := r.Header.Get(RequestIDHeader)
	plain := func(c rune) bool { return c > ' ' && c <= '~' }
	if id == "" || len(id) > 128 || strings.IndexFunc(id, func(c rune) bool { return !plain(c) }) >= 0 {
		return rand.Text()
	}
	return id
}

// handler serves one operation on the route that it was matched by.
func (s *Server) handler(o *Operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := RequestID(r)
		w.Header().Set(RequestIDHeader, id)
		defer s.flush(r.Context())
		r, span := s.Telemetry.Request(r, o.spec.Name, o.spec.Path)
		res, caller, err := s.serve(o, w, r, id)
		span.End(caller.OwnerID, res.Status, err)
		if err != nil {
			s.Log(r.Context(), o.spec.Name, caller, id, err)
			WriteProblem(w, id, err)
			return
		}
		if f, ok := res.Value.(File); ok {
			f.serve(w, r, o.spec.Produces)
			return
		}
		writeJSON(w, res.Status, "application/json", res.JSON)
	})
}

func (s *Server) serve(o *Operation, w http.ResponseWriter, r *http.Request, id string) (res Result, caller auth.Caller, err error) {
	defer func() {
		// a handler's own panic is caught where its stack is; this is ours
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
	}()
	if o.spec.Access == Owner {
		caller, err = s.Caller(r)
	} else {
		caller, err = s.Anyone(r)
	}
	if err != nil {
		return res, caller, err
	}
	if err := o.authorize(caller); err != nil {
		return res, caller, err
	}
	if err := s.Admit(r.Context(), caller); err != nil {
		return res, caller, err
	}
	body, err := o.readBody(w, r)
	if err != nil {
		return res, caller, err
	}
	form, err := o.readForm(r.Header, body)
	if err != nil {
		return res, caller, err
	}
	in, ctl, err := o.decodeHTTP(r, body, form)
	if err != nil {
		return res, caller, err
	}
	info := CallInfo{Face: "http", RequestID: id, MaxWait: s.MaxWait}
	if form != nil {
		info.Files = form.files
	}
	if wait, ok := preferWait(r.Header); ok {
		info.Wait = &wait
	}
	call, err := o.newCall(ctl, info)
	if err != nil {
		return res, caller, err
	}
	if info.Wait != nil && o.spec.MaxWait > 0 && !ctl.WaitSeconds.Set {
		w.Header().Set("Preference-Applied", fmt.Sprintf("wait=%d", call.Wait/time.Second))
	}
	res, err = o.invoke(r.Context(), caller, in, call)
	if err == nil {
		for _, h := range o.spec.Headers {
			if v := h.Value(res.Value); v != "" {
				w.Header().Set(h.Name, v)
			}
		}
	}
	return res, caller, err
}

func (o *Operation) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	tooLarge := fault.New(fault.TooLarge, "body_too_large", fmt.Sprintf("The body may have %d bytes at most.", o.spec.MaxBody))
	if r.ContentLength > o.spec.MaxBody {
		return nil, tooLarge
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	reader := http.MaxBytesReader(w, r.Body, o.spec.MaxBody)
	body := make([]byte, 0, max(r.ContentLength, 0)+1)
	for {
		n, err := reader.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		var over *http.MaxBytesError
		switch {
		case errors.Is(err, io.EOF):
			if len(body) == 0 {
				return nil, nil
			}
			return body, nil
		case errors.As(err, &over):
			return nil, tooLarge
		case err != nil:
			return nil, &fault.Fault{Kind: fault.Invalid, Code: "incomplete_body", Detail: "The body ended early.", Err: err}
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
	}
}

// Handler serves the catalog's routes. Everything else is a problem: not_found,
// or method_not_allowed with Allow. A HEAD request is answered as GET without
// the body.
func (c Catalog) Handler(s *Server) http.Handler {
	mux := http.NewServeMux()
	for _, o := range c.ops {
		mux.Handle(o.spec.Method+" "+o.spec.Path, s.handler(o))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// the mux would redirect an unclean path, which no client of an API follows well
		escaped := r.URL.EscapedPath()
		if clean := path.Clean("/" + escaped); clean == escaped || clean != "/" && clean+"/" == escaped {
			h, pattern := mux.Handler(r)
			if pattern != "" {
				mux.ServeHTTP(w, r)
				return
			}
			var refusal refusal
			h.ServeHTTP(&refusal, r)
			if refusal.status == http.StatusMethodNotAllowed {
				allow := refusal.Header().Get("Allow")
				w.Header().Set("Allow", allow)
				refuse(w, r, fault.New(fault.MethodNotAllowed, "method_not_allowed", "This address takes "+allow+"."))
				return
			}
		}
		refuse(w, r, fault.New(fault.NotFoundKind, "not_found", "There is nothing at this address."))
	})
}

func refuse(w http.ResponseWriter, r *http.Request, f *fault.Fault) {
	id := RequestID(r)
	w.Header().Set(RequestIDHeader, id)
	WriteProblem(w, id, f)
}

// refusal learns why the mux has no handler.
type refusal struct {
	header http.Header
	status int
}

func (r *refusal) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}
func (r *refusal) WriteHeader(status int)      { r.status = status }
func (r *refusal) Write(b []byte) (int, error) { return len(b), nil }
