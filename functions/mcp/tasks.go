package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/task"
)

// The Tasks extension, revision 2026-07-28 of
// https://github.com/modelcontextprotocol/ext-tasks (SEP-2663).
//
// A client that declares it in a request's capabilities gets, instead of an
// answer with a receipt in it, a task handle; its id is the receipt. Nothing
// is kept here: tasks/get is the operation tasks.get, tasks/cancel is
// tasks.cancel, and the result of a task that has ended is asked for again from
// the family that handed the receipt out (Options.Answers). tasks/update is
// acknowledged; no task of ours asks its client for input. Subscriptions
// (notifications/tasks) are optional and not offered: they need a stream.
const tasksExtension = "io.modelcontextprotocol/tasks"

const (
	// taskTTL is how long a task can be read: 30 days from its end, and so at
	// least from its creation.
	taskTTL = 30 * 24 * time.Hour
	// taskPoll is the interval that clients are asked to poll at.
	taskPoll = time.Second
)

// Receipted is the answer of an operation that may leave work in flight.
type Receipted interface {
	// PendingReceipt is the id of the task that the answer didn't wait for to the
	// end, or "".
	PendingReceipt() string
}

type taskParams struct {
	sdk.ParamsBase
	TaskID string `json:"taskId"`
}

// taskResult is CreateTaskResult with resultType "task", GetTaskResult with
// "complete".
type taskResult struct {
	sdk.ResultBase
	ResultType     string              `json:"resultType"`
	TaskID         string              `json:"taskId"`
	Status         string              `json:"status"`
	StatusMessage  string              `json:"statusMessage,omitempty"`
	CreatedAt      time.Time           `json:"createdAt"`
	LastUpdatedAt  time.Time           `json:"lastUpdatedAt"`
	TTLMs          int64               `json:"ttlMs"`
	PollIntervalMs int64               `json:"pollIntervalMs"`
	Result         *sdk.CallToolResult `json:"result,omitempty"`
}

type taskAck struct {
	sdk.ResultBase
	ResultType string `json:"resultType"`
}

func (e *endpoint) addTasks(s *sdk.Server) {
	add(s, "tasks/get", func(ctx context.Context, id string) (*taskResult, error) {
		return e.task(callOf(ctx), id)
	})
	add(s, "tasks/update", func(ctx context.Context, id string) (*taskAck, error) {
		_, err := e.task(callOf(ctx), id)
		return &taskAck{ResultType: "complete"}, err
	})
	add(s, "tasks/cancel", func(ctx context.Context, id string) (*taskAck, error) {
		_, err := e.invoke(callOf(ctx), e.cat.ByName("tasks.cancel"), map[string]any{"id": id, "wait_seconds": 0})
		if f := fault.From(err); f != nil && f.Kind == fault.Conflict {
			err = nil // it has ended already; a request to cancel is not a promise
		}
		return &taskAck{ResultType: "complete"}, err
	})
}

// add registers a method of the extension, for clients that declare it.
func add[R sdk.Result](s *sdk.Server, method string, do func(context.Context, string) (R, error)) {
	err := sdk.AddReceivingCustomMethod(s, method, func(ctx context.Context, _ *sdk.ServerSession, p *taskParams) (R, error) {
		var none R
		if p == nil {
			p = &taskParams{}
		}
		res, err := do(ctx, p.TaskID)
		if err != nil {
			return none, taskError(err)
		}
		return res, nil
	})
	if err != nil {
		panic(err) // the SDK has made the method its own
	}
}

// undeclared is the error for a client that uses a method of the extension
// without declaring the extension in the same request.
func undeclared() error {
	return &jsonrpc.Error{
		Code:    sdk.CodeMissingRequiredClientCapabilities,
		Message: "This method needs the client capability " + tasksExtension + ".",
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
}

func taskError(err error) error {
	f := fault.From(err)
	code := int64(jsonrpc.CodeInvalidParams)
	if f.Status() >= 500 {
		code = jsonrpc.CodeInternalError
	}
	data, _ := json.Marshal(f.Problem("")) // a struct of strings
	return &jsonrpc.Error{Code: code, Message: f.Detail, Data: data}
}

func declaresTasks(req sdk.Request) bool {
	r, ok := req.(interface {
		ClientCapabilities() *sdk.ClientCapabilities
	})
	if !ok {
		return false
	}
	caps := r.ClientCapabilities()
	if caps == nil {
		return false
	}
	_, ok = caps.Extensions[tasksExtension]
	return ok
}

// handle replaces an answer with a receipt in it by a task handle, if the
// receipt's task can be followed to the operation's answer.
func (e *endpoint) handle(c *call, answer *sdk.CallToolResult) sdk.Result {
	if e.answer(c.receipt) == nil {
		return answer
	}
	t, err := e.task(c, c.receipt)
	if err != nil { // a token that may not read tasks, for one
		return answer
	}
	t.ResultType, t.Result = "task", nil
	return t
}

// invoke calls an operation as the caller. A catalog without it has no tasks.
func (e *endpoint) invoke(c *call, o *op.Operation, args map[string]any) (op.Result, error) {
	if o == nil {
		return op.Result{}, fault.NotFound("task")
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return op.Result{}, err
	}
	return e.Server.Call(c.ctx, o, c.caller, raw, c.info)
}

// task is a task as tasks/get shows it. What has ended is "completed" with the
// result that the tool would give now, also when the work failed for good:
// "failed" is reserved for calls that ended in a JSON-RPC error, and ours don't.
func (e *endpoint) task(c *call, id string) (*taskResult, error) {
	res, err := e.invoke(c, e.cat.ByName("tasks.get"), map[string]any{"id": id, "wait_seconds": 0})
	if err != nil {
		return nil, err
	}
	var got struct {
		Task task.Task `json:"task"`
	}
	if err := json.Unmarshal(res.JSON, &got); err != nil {
		return nil, err
	}
	row := got.Task
	t := &taskResult{
		ResultType: "complete", TaskID: id, Status: "working", StatusMessage: row.Sentence,
		CreatedAt: row.Timeline.Committed, LastUpdatedAt: row.Timeline.Committed,
		TTLMs: taskTTL.Milliseconds(), PollIntervalMs: taskPoll.Milliseconds(),
	}
	for _, at := range []*time.Time{row.Timeline.FannedOut, row.Timeline.Started, row.Timeline.Finished} {
		if at != nil && at.After(t.LastUpdatedAt) {
			t.LastUpdatedAt = *at
		}
	}
	switch row.State {
	case task.Cancelled:
		t.Status = "cancelled"
	case task.Completed, task.Discarded:
		t.Status = "completed"
		answer := e.answer(id)
		if answer == nil { // a receipt, but never handed out as a handle
			t.Result = result(row.Sentence, res.JSON)
			break
		}
		res, err := e.invoke(c, answer, map[string]any{"id": id})
		if f := fault.From(err); f != nil && f.Status() >= 500 {
			return nil, f
		} else if f != nil {
			t.Result = failure(c, f)
			break
		}
		t.Result = result(row.Sentence, res.JSON)
	}
	return t, nil
}

// answer is the operation that answers for a receipt; nil if there is none.
func (e *endpoint) answer(receipt string) *op.Operation {
	_, subscriber, _ := strings.Cut(receipt, ":")
	return e.Answers[subscriber]
}
