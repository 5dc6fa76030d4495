package mcp_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/task"
)

// world is a small product in memory: notes whose indexing takes a while, and
// the fixtures that the conformance suite asks for by name.
type world struct {
	mu    sync.Mutex
	index time.Duration // how long indexing takes
	notes []*note
	jobs  map[string]*job
}

type note struct {
	ID       string   `json:"id"`
	Genre    string   `json:"genre"`
	Title    string   `json:"title"`
	Body     string   `json:"body"`
	ParentID string   `json:"parent_id,omitempty"`
	Tags     []string `json:"tags"`
}

// job ends by the clock unless it is cancelled before.
type job struct {
	note      *note
	made, end time.Time
	cancelled time.Time
	failed    bool
}

func newWorld() *world { return &world{jobs: map[string]*job{}} }

// indexing takes d from now on.
func (w *world) indexing(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index = d
}

func (w *world) start(subscriber string, n *note, d time.Duration, failed bool) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := uuid.NewString() + ":" + subscriber
	now := time.Now().UTC()
	w.jobs[id] = &job{note: n, made: now, end: now.Add(d), failed: failed}
	return id
}

func (w *world) job(id string) (job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[id]
	if j == nil {
		return job{}, fault.NotFound("task")
	}
	return *j, nil
}

func (j job) state() task.State {
	switch {
	case !j.cancelled.IsZero():
		return task.Cancelled
	case time.Now().Before(j.end):
		return task.Running
	case j.failed:
		return task.Discarded
	}
	return task.Completed
}

type wait struct {
	AskedMS int64  `json:"asked_ms"`
	Ended   string `json:"ended"`
}

func (j job) await(ctx context.Context) wait {
	call := op.CallFrom(ctx)
	w := wait{AskedMS: call.Wait.Milliseconds(), Ended: "observed"}
	left := time.Until(j.end)
	if call.Wait == 0 {
		w.Ended = "not_asked"
		return w
	}
	if left > call.Wait {
		left, w.Ended = call.Wait, "timeout"
	}
	select {
	case <-time.After(left):
	case <-ctx.Done():
		w.Ended = "timeout"
	}
	return w
}

type written struct {
	Note       note   `json:"note"`
	Indexed    bool   `json:"indexed"`
	IndexJobID string `json:"index_job_id"`
	Wait       wait   `json:"wait"`
}

func (w written) PendingReceipt() string {
	if w.Indexed {
		return ""
	}
	return w.IndexJobID
}

type computed struct {
	Result string `json:"result"`
	JobID  string `json:"job_id"`
	Wait   wait   `json:"wait"`
}

func (c computed) PendingReceipt() string {
	if c.Wait.Ended == "observed" {
		return ""
	}
	return c.JobID
}

type empty struct{}

type text struct {
	Text string `json:"text"`
}

func sayText(v any) string { return v.(text).Text }

type receiptIn struct {
	ID string `json:"id" path:"id"`
}

type taskOut struct {
	Task task.Task `json:"task"`
}

func (w *world) save(ctx context.Context, n *note) written {
	w.mu.Lock()
	w.notes = append(slices.DeleteFunc(w.notes, func(o *note) bool { return o.ID == n.ID }), n)
	index := w.index
	w.mu.Unlock()
	id := w.start("corpus.index", n, index, false)
	j, _ := w.job(id)
	ended := j.await(ctx)
	return written{*n, ended.Ended == "observed", id, ended}
}

func (w *world) find(id string) (note, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.notes {
		if n.ID == id {
			return *n, nil
		}
	}
	return note{}, fault.NotFound("note")
}

func (w *world) catalog() op.Catalog {
	type createIn struct {
		Genre string   `json:"genre" enum:"raw,wiki,output" jsonschema:"Kind of note."`
		Title string   `json:"title,omitempty"`
		Body  string   `json:"body,omitempty"`
		Tags  []string `json:"tags,omitempty" jsonschema:"Words to find it by."`
	}
	type updateIn struct {
		ID       string         `json:"id" path:"id"`
		Genre    op.Opt[string] `json:"genre,omitzero" enum:"raw,wiki,output"`
		Title    op.Opt[string] `json:"title,omitzero"`
		Body     op.Opt[string] `json:"body,omitzero"`
		ParentID op.Opt[string] `json:"parent_id,omitzero"`
	}
	type listIn struct {
		op.Paging
		Genre string `json:"genre,omitempty" enum:"raw,wiki,output"`
	}
	type searchIn struct {
		Q string `json:"q" minLength:"1"`
	}
	type hit struct {
		Note note `json:"note"`
	}
	type getTaskIn struct {
		ID string `json:"id" path:"id"`
	}
	type overviewIn struct {
		Kind string `json:"kind,omitempty"`
	}
	type overviewOut struct {
		Kind  string `json:"kind"`
		Total int    `json:"total"`
	}
	type computeIn struct {
		Seconds float64 `json:"seconds,omitempty" minimum:"0"`
		Label   string  `json:"label,omitempty"`
	}
	type greetIn struct {
		Name string `json:"name"`
	}

	wait := 100 * time.Millisecond
	write, read := &op.Tool{}, &op.Tool{ReadOnly: true, Idempotent: true}
	return op.NewCatalog(
		op.New(op.Spec{
			Name: "corpus.create", Method: "POST", Path: "/v1/corpus", Scope: "corpus:write", Tool: write, MaxWait: wait,
			Summary: "Create a note", Description: "Saves a note and waits until search finds it.",
			Say: func(v any) string {
				if v.(written).Indexed {
					return "Saved and indexed."
				}
				return "Saved. Search does not know it yet."
			},
		}, func(ctx context.Context, _ auth.Caller, in createIn) (written, error) {
			if in.Title == "" && in.Genre != "raw" {
				return written{}, fault.InvalidField("title", "missing_field", "A note of this genre needs a title.")
			}
			return w.save(ctx, &note{ID: uuid.NewString(), Genre: in.Genre, Title: in.Title, Body: in.Body, Tags: in.Tags}), nil
		}),
		op.New(op.Spec{
			Name: "corpus.update", Method: "PATCH", Path: "/v1/corpus/{id}", Scope: "corpus:write", Tool: &op.Tool{Idempotent: true}, MaxWait: wait,
			Summary: "Change a note", Description: "Changes what is given.",
		}, func(ctx context.Context, _ auth.Caller, in updateIn) (written, error) {
			n, err := w.find(in.ID)
			if err != nil {
				return written{}, err
			}
			n.Genre, n.Title, n.Body, n.ParentID = in.Genre.Or(n.Genre), in.Title.Or(n.Title), in.Body.Or(n.Body), in.ParentID.Or(n.ParentID)
			return w.save(ctx, &n), nil
		}),
		op.New(op.Spec{
			Name: "corpus.delete", Method: "DELETE", Path: "/v1/corpus/{id}", Scope: "corpus:write", Tool: &op.Tool{Destructive: true},
			Summary: "Delete a note", Description: "Deletes a note.",
		}, func(_ context.Context, _ auth.Caller, in receiptIn) (empty, error) {
			_, err := w.find(in.ID)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.notes = slices.DeleteFunc(w.notes, func(o *note) bool { return o.ID == in.ID })
			return empty{}, err
		}),
		op.New(op.Spec{
			Name: "corpus.list", Method: "GET", Path: "/v1/corpus", Scope: "corpus:read", Tool: read,
			Summary: "List notes", Description: "Lists notes.",
		}, func(_ context.Context, _ auth.Caller, in listIn) (op.Page[note], error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			page := op.Page[note]{Total: len(w.notes)}
			for _, n := range w.notes[:min(in.Limit, len(w.notes))] {
				page.Items = append(page.Items, *n)
			}
			return page, nil
		}),
		op.New(op.Spec{
			Name: "corpus.search", Method: "GET", Path: "/v1/corpus/search", Scope: "corpus:read", Tool: read,
			Summary: "Search notes", Description: "Finds notes that are indexed.",
		}, func(_ context.Context, _ auth.Caller, in searchIn) (op.Page[hit], error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			var page op.Page[hit]
			for _, j := range w.jobs {
				if j.note != nil && j.state() == task.Completed && strings.Contains(j.note.Title+j.note.Body, in.Q) {
					page.Items, page.Total = append(page.Items, hit{*j.note}), page.Total+1
				}
			}
			return page, nil
		}),
		op.New(op.Spec{
			Name: "tasks.get", Method: "GET", Path: "/v1/tasks/{id}", Scope: "tasks:read", Tool: read, MaxWait: 20 * time.Second, WaitIfAsked: true, Timeout: 29 * time.Second,
			Summary: "Read a task", Description: "Says where a task stands.",
		}, func(ctx context.Context, _ auth.Caller, in getTaskIn) (taskOut, error) {
			j, err := w.job(in.ID)
			if err != nil {
				return taskOut{}, err
			}
			j.await(ctx)
			if j, err = w.job(in.ID); err != nil {
				return taskOut{}, err
			}
			out := task.Task{ID: in.ID, State: j.state(), Sentence: "The task is " + string(j.state()) + ".", Timeline: task.Timeline{Committed: j.made, Started: &j.made}}
			switch out.State {
			case task.Cancelled:
				out.Timeline.Finished = &j.cancelled
			case task.Completed, task.Discarded:
				out.Timeline.Finished = &j.end
			}
			return taskOut{out}, nil
		}),
		op.New(op.Spec{
			Name: "tasks.cancel", Method: "POST", Path: "/v1/tasks/{id}/cancel", Scope: "tasks:write", Tool: &op.Tool{Destructive: true, Idempotent: true}, MaxWait: wait,
			Summary: "Cancel a task", Description: "Cancels a task.",
		}, func(_ context.Context, _ auth.Caller, in receiptIn) (empty, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			j := w.jobs[in.ID]
			if j == nil {
				return empty{}, fault.NotFound("task")
			}
			if s := j.state(); s != task.Running {
				return empty{}, fault.New(fault.Conflict, "task_ended", "The task is "+string(s)+".")
			}
			j.cancelled = time.Now().UTC()
			return empty{}, nil
		}),
		op.New(op.Spec{
			Name: "tasks.overview", Method: "GET", Path: "/v1/tasks/overview", Scope: "tasks:read", Tool: read,
			Summary: "Count tasks", Description: "Counts tasks.",
		}, func(_ context.Context, _ auth.Caller, in overviewIn) (overviewOut, error) {
			return overviewOut{Kind: in.Kind}, nil
		}),
		op.New(op.Spec{
			Name: "account.get", Method: "GET", Path: "/v1/account", Scope: "account:read",
			Summary: "Read the account", Description: "Not a tool.",
		}, func(context.Context, auth.Caller, empty) (empty, error) { return empty{}, nil }),

		// What follows is named by the conformance suite.
		op.New(op.Spec{
			Name: "slow.compute", Method: "POST", Path: "/v1/slow", Scope: "tasks:write", Tool: write, MaxWait: wait,
			Summary: "Compute slowly", Description: "Takes the given number of seconds.",
		}, func(ctx context.Context, _ auth.Caller, in computeIn) (computed, error) {
			id := w.start("slow.compute", nil, time.Duration(in.Seconds*float64(time.Second)), false)
			j, _ := w.job(id)
			return computed{"computed", id, j.await(ctx)}, nil
		}),
		op.New(op.Spec{
			Name: "failing.job", Method: "POST", Path: "/v1/failing", Scope: "tasks:write", Tool: write, MaxWait: wait,
			Summary: "Fail slowly", Description: "Fails after a second.",
		}, func(ctx context.Context, _ auth.Caller, _ empty) (computed, error) {
			id := w.start("failing.job", nil, time.Second, true)
			j, _ := w.job(id)
			return computed{"", id, j.await(ctx)}, nil
		}),
		op.New(op.Spec{
			Name: "greet.someone", Method: "POST", Path: "/v1/greet", Scope: "tasks:read", Tool: read,
			Summary: "Greet", Description: "Greets.", Say: sayText,
		}, func(_ context.Context, _ auth.Caller, in greetIn) (text, error) {
			return text{fmt.Sprintf("Hello, %s!", in.Name)}, nil
		}),
		op.New(op.Spec{
			Name: "test.simple_text", Method: "GET", Path: "/v1/text", Scope: "tasks:read", Tool: read,
			Summary: "Say something", Description: "Says something.", Say: sayText,
		}, func(context.Context, auth.Caller, empty) (text, error) {
			return text{"This is a simple text response for testing."}, nil
		}),
		op.New(op.Spec{
			Name: "test.tool_with_progress", Method: "POST", Path: "/v1/progress", Scope: "tasks:write", Tool: write,
			Summary: "Come along", Description: "Tells how far it has come.", Say: sayText,
		}, func(ctx context.Context, _ auth.Caller, _ empty) (text, error) {
			call := op.CallFrom(ctx)
			for _, done := range []float64{0, 50, 50, 20, 100} { // what doesn't rise is not told
				call.Progress(done, 100, fmt.Sprintf("%v of 100", done))
			}
			return text{fmt.Sprint(call.Listening)}, nil
		}),
		op.New(op.Spec{
			Name: "test.error_handling", Method: "GET", Path: "/v1/error", Scope: "tasks:read", Tool: read,
			Summary: "Refuse", Description: "Refuses.",
		}, func(context.Context, auth.Caller, empty) (empty, error) {
			return empty{}, fault.New(fault.Conflict, "test", "This tool intentionally returns an error for testing.")
		}),
	)
}

// answers are the operations that answer for a receipt.
func (w *world) answers() map[string]*op.Operation {
	spec := op.Spec{Name: "corpus.receipt", Method: "GET", Path: "/v1/receipts/{id}", Scope: "tasks:read", Summary: "Answer"}
	compute := func(_ context.Context, _ auth.Caller, in receiptIn) (computed, error) {
		j, err := w.job(in.ID)
		if err == nil && j.failed {
			return computed{}, fault.New(fault.Unprocessable, "failed", "The job failed.")
		}
		return computed{"computed", in.ID, wait{Ended: "not_asked"}}, err
	}
	return map[string]*op.Operation{
		"corpus.index": op.New(spec, func(_ context.Context, _ auth.Caller, in receiptIn) (written, error) {
			j, err := w.job(in.ID)
			if err != nil {
				return written{}, err
			}
			return written{*j.note, j.state() == task.Completed, in.ID, wait{Ended: "not_asked"}}, nil
		}),
		"slow.compute": op.New(spec, compute),
		"failing.job":  op.New(spec, compute),
	}
}
