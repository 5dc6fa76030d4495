package mcp_test

import (
	"strings"
	"testing"
	"time"
)

func extension() map[string]any {
	return map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}
}

type taskMessage struct {
	ResultType, TaskID, Status, StatusMessage string
	CreatedAt, LastUpdatedAt                  time.Time
	TTLMs, PollIntervalMs                     *int64
	Result                                    *toolResult
	Content                                   []any
}

func (e *endpoint) create(capabilities map[string]any, h header) (answer, message) {
	e.t.Helper()
	return e.modern("tools/call", "corpus_create", map[string]any{"name": "corpus_create",
		"arguments": map[string]any{"genre": "wiki", "title": "found"}}, capabilities, h)
}

func (e *endpoint) task(method, id string) (answer, message) {
	e.t.Helper()
	return e.modern(method, id, map[string]any{"taskId": id}, extension(), nil)
}

// settle polls a task until it has ended.
func (e *endpoint) settle(id string) taskMessage {
	e.t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for late := time.After(10 * time.Second); ; {
		_, m := e.task("tasks/get", id)
		if m.Error != nil {
			e.t.Fatal(m.Error)
		}
		got := decode[taskMessage](e.t, m.Result)
		if got.ResultType != "complete" || got.TaskID != id || (got.Result != nil) != (got.Status == "completed") {
			e.t.Fatalf("%s", m.Result)
		}
		if got.Status != "working" {
			return got
		}
		select {
		case <-poll.C:
		case <-late:
			e.t.Fatalf("still %s", m.Result)
		}
	}
}

func TestTaskHandle(t *testing.T) {
	e := endpointOf(t)
	e.world.indexing(500 * time.Millisecond)
	_, m := e.create(extension(), nil)
	made := decode[taskMessage](t, m.Result)
	if made.ResultType != "task" || made.Status != "working" || !strings.HasSuffix(made.TaskID, ":corpus.index") || made.Result != nil || made.Content != nil ||
		made.CreatedAt.IsZero() || made.LastUpdatedAt.Before(made.CreatedAt) || *made.TTLMs != 30*24*3600*1000 || *made.PollIntervalMs <= 0 {
		t.Fatalf("%s", m.Result)
	}
	done := e.settle(made.TaskID)
	// exactly what corpus_create answers once its work is done
	n, _ := done.Result.Structured["note"].(map[string]any)
	if done.Result.IsError || done.Result.Structured["indexed"] != true || done.Result.Structured["index_job_id"] != made.TaskID || n["title"] != "found" {
		t.Errorf("%+v", done.Result)
	}
	if _, m := e.task("tasks/update", made.TaskID); decode[taskMessage](t, m.Result).ResultType != "complete" {
		t.Errorf("update: %+v", m)
	}
	if _, m := e.task("tasks/cancel", made.TaskID); m.Error != nil || decode[taskMessage](t, m.Result).ResultType != "complete" {
		t.Errorf("cancel of what has ended: %+v", m.Error)
	}
	if _, m := e.task("tasks/get", made.TaskID); decode[taskMessage](t, m.Result).Status != "completed" {
		t.Errorf("after the cancel: %s", m.Result)
	}
}

func TestTaskCancel(t *testing.T) {
	e := endpointOf(t)
	e.world.indexing(time.Hour)
	_, m := e.create(extension(), nil)
	id := decode[taskMessage](t, m.Result).TaskID
	if _, m := e.task("tasks/cancel", id); m.Error != nil {
		t.Fatal(m.Error)
	}
	_, m = e.task("tasks/get", id)
	if got := decode[taskMessage](t, m.Result); got.Status != "cancelled" || got.Result != nil || got.LastUpdatedAt.Before(got.CreatedAt) {
		t.Errorf("%s", m.Result)
	}
}

func TestTaskOfFailedWork(t *testing.T) {
	e := endpointOf(t)
	_, m := e.modern("tools/call", "failing_job", map[string]any{"name": "failing_job"}, extension(), nil)
	id := decode[taskMessage](t, m.Result).TaskID
	got := e.settle(id)
	if got.Status != "completed" || !got.Result.IsError {
		t.Errorf("%+v", got)
	}
}

func TestNoTaskHandle(t *testing.T) {
	e := endpointOf(t)
	if _, m := e.create(extension(), nil); m.tool(t).Structured["indexed"] != true || m.tool(t).ResultType != "complete" {
		t.Errorf("work that ended within the wait: %s", m.Result)
	}
	e.world.indexing(time.Hour)
	for what, m := range map[string]message{
		"not declared":        second(e.create(map[string]any{}, nil)),
		"another extension":   second(e.create(map[string]any{"extensions": map[string]any{"example/other": map[string]any{}}}, nil)),
		"may not read tasks":  second(e.create(extension(), header{"Authorization": "Bearer writer"})),
		"of an older version": e.rpc("", "tools/call", map[string]any{"name": "corpus_create", "arguments": map[string]any{"genre": "wiki", "title": "x"}}, nil),
	} {
		r := m.tool(t)
		if r.ResultType == "task" || r.Structured["indexed"] != false || !strings.HasSuffix(r.Structured["index_job_id"].(string), ":corpus.index") {
			t.Errorf("%s: %s", what, m.Result)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

func TestTaskErrors(t *testing.T) {
	e := endpointOf(t)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		a, m := e.modern(method, "x:y", map[string]any{"taskId": "x:y"}, map[string]any{}, nil)
		if a.status != 400 || m.Error == nil || m.Error.Code != -32021 || !strings.Contains(string(m.Error.Data), `"io.modelcontextprotocol/tasks":{}`) {
			t.Errorf("%s undeclared: %d %s", method, a.status, a.body)
		}
		if m := e.rpc("", method, map[string]any{"taskId": "x:y"}, nil); m.Error == nil || m.Error.Code != -32021 {
			t.Errorf("%s of an older version: %+v", method, m.Error)
		}
		if a, m := e.task(method, "x:y"); a.status != 400 || m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s unknown: %d %s", method, a.status, a.body)
		}
		if a, m := e.modern(method, "other", map[string]any{"taskId": "x:y"}, extension(), nil); a.status != 400 || m.Error == nil || m.Error.Code != -32020 {
			t.Errorf("%s with another Mcp-Name: %d %s", method, a.status, a.body)
		}
		if _, m := e.modern(method, "x:y", map[string]any{"taskId": "x:y"}, extension(), header{"Authorization": "Bearer none"}); m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s without the scope: %+v", method, m)
		}
	}
	for _, method := range []string{"tasks/result", "tasks/list"} { // withdrawn
		if a, m := e.task(method, "x:y"); a.status != 404 || m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
}
