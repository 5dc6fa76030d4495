package op

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
)

// Progress tells a caller who listens how far the work is. total is 0 when it
// isn't known.
type Progress func(done, total float64, note string)

// CallInfo is what a face knows about a call besides its arguments.
type CallInfo struct {
	// Face is "http", "mcp" or empty for a call within the process.
	Face      string
	RequestID string
	// Wait is what the transport asked for (Prefer: wait=N); nil when it asked
	// nothing. The argument wait_seconds wins over it.
	Wait *time.Duration
	// MaxWait bounds the wait in addition to the Spec's; 0 doesn't, and a negative
	// one allows none.
	MaxWait time.Duration
	// IdempotencyKey of the transport; the argument idempotency_key wins over it.
	IdempotencyKey string
	// Files that came with the request.
	Files []Upload
	// Progress may be nil.
	Progress Progress
}

// Call is what a handler may know of the call that it serves.
type Call struct {
	Operation string
	Face      string
	RequestID string
	// Wait is how long the handler may wait for work that it started or asks for,
	// within every bound; 0 means not at all.
	Wait time.Duration
	// WaitAsked: the caller named the wait, so that 0 is their wish.
	WaitAsked bool
	// IdempotencyKey is empty when there is none.
	IdempotencyKey string
	// Files are those that an operation with Uploads was sent, in their order. Their
	// bytes are not to be changed.
	Files []Upload
	// Progress is never nil.
	Progress Progress
	// Listening: somebody hears of progress.
	Listening bool

	scope string
}

// Owner refuses a caller who is not an owner with the operation's scope, as an
// operation with Owner access would.
func (c *Call) Owner(caller auth.Caller) error { return ownerWith(caller, c.scope) }

type callKey struct{}

// CallFrom gives the call that ctx belongs to. Outside of one it is a zero Call
// that takes progress and drops it.
func CallFrom(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &Call{Progress: func(float64, float64, string) {}}
}

// Result is a success.
type Result struct {
	// Value is the handler's Out.
	Value any
	// JSON is its encoding: times in UTC, lists never null.
	JSON json.RawMessage
	// Say is the Spec's sentence about it; may be empty.
	Say string
	// Status is the HTTP status.
	Status int
}

// Call runs the operation for caller with arguments as an MCP client sends
// them: nil and null are {}, null stands for an absent field, a string that is
// exactly a number, boolean, list or object is taken as one where that is
// wanted, and an integer as text by its digits. HTTP is not as lenient.
//
// The error is always a *fault.Fault. Its codes, besides the handler's own:
// unauthorized (401), forbidden_scope and forbidden (403), not_found for a
// path parameter that can't be an id, and 400 malformed_json, unknown_field,
// duplicate_field, missing_field, wrong_type, invalid_text, invalid_format,
// not_allowed, too_short, too_long, too_small, too_large, too_many, or
// invalid_request when the fields at fault differ in their codes; timeout (503)
// and internal (500), also after a panic. The last two carry a cause for the log:
// use Server.Call where there is one.
func (o *Operation) Call(ctx context.Context, caller auth.Caller, args json.RawMessage, info CallInfo) (Result, error) {
	if err := o.authorize(caller); err != nil {
		return Result{}, err
	}
	in, ctl, err := o.decodeArgs(args)
	if err != nil {
		return Result{}, err
	}
	call, err := o.newCall(ctl, info)
	if err != nil {
		return Result{}, err
	}
	return o.invoke(ctx, caller, in, call)
}

func (o *Operation) authorize(c auth.Caller) error {
	if o.spec.Access != Owner {
		return nil
	}
	return ownerWith(c, o.spec.Scope)
}

func ownerWith(c auth.Caller, scope string) error {
	switch {
	case c.Kind == auth.Anonymous:
		return fault.New(fault.Unauthorized, "unauthorized", "This needs a token or a session of the owner.")
	case c.Kind != auth.Owner:
		return fault.New(fault.Forbidden, "forbidden", "Only the owner may do this.")
	case !c.Allows(scope):
		return fault.New(fault.Forbidden, "forbidden_scope", fmt.Sprintf("The token lacks the scope %s.", scope))
	}
	return nil
}

func (o *Operation) newCall(ctl *controls, info CallInfo) (*Call, error) {
	c := &Call{scope: o.spec.Scope, Operation: o.spec.Name, Face: info.Face, RequestID: info.RequestID, Files: info.Files, Progress: info.Progress}
	if c.Listening = c.Progress != nil; !c.Listening {
		c.Progress = func(float64, float64, string) {}
	}
	if ctl.WaitSeconds.Null {
		ctl.WaitSeconds = Opt[float64]{}
	}
	if most := o.spec.MaxWait; most > 0 {
		if info.MaxWait != 0 {
			most = max(min(most, info.MaxWait), 0)
		}
		switch {
		case ctl.WaitSeconds.Set:
			// compared as seconds: a huge number would overflow a Duration
			c.Wait, c.WaitAsked = most, true
			if ctl.WaitSeconds.Value < most.Seconds() {
				c.Wait = time.Duration(ctl.WaitSeconds.Value * float64(time.Second))
			}
		case info.Wait != nil:
			c.Wait, c.WaitAsked = min(*info.Wait, most), true
		case !o.spec.WaitIfAsked:
			c.Wait = most
		}
	}
	if _, ok := o.input.byName["idempotency_key"]; ok {
		c.IdempotencyKey = info.IdempotencyKey
		if ctl.IdempotencyKey.Set {
			c.IdempotencyKey = ctl.IdempotencyKey.Value
		}
		for _, r := range c.IdempotencyKey {
			if r < ' ' || r > '~' {
				var d decoder
				d.refuse(&place{name: "idempotency_key"}, "invalid_format", "must be printable ASCII")
				return nil, d.err()
			}
		}
	}
	return c, nil
}

// panicked is the cause of the fault that a panic becomes.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (o *Operation) invoke(ctx context.Context, caller auth.Caller, in any, call *Call) (res Result, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, callKey{}, call), o.spec.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
		if err != nil {
			res, err = Result{}, fault.From(err)
		}
	}()
	out, err := o.run(ctx, caller, in)
	if err != nil {
		return Result{}, err
	}
	if o.file {
		return Result{Value: out, Status: o.spec.Status}, nil
	}
	body, err := o.output.encode(out)
	if _, write := o.input.byName["idempotency_key"]; err != nil && write {
		err = saved(err)
	}
	if err != nil {
		return Result{}, err
	}
	res = Result{Value: out, JSON: body, Status: o.spec.Status}
	if o.spec.Say != nil {
		res.Say = o.spec.Say(out)
	}
	return res, nil
}
