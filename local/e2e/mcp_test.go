package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rpc sends one JSON-RPC request as a client of the current revision; with
// tasks it declares the Tasks extension.
func (s *site) rpc(method string, params object, tasks bool) answer {
	capabilities := object{}
	if tasks {
		capabilities["extensions"] = object{"io.modelcontextprotocol/tasks": object{}}
	}
	const revision = "2026-07-28"
	params["_meta"] = object{
		"io.modelcontextprotocol/protocolVersion":    revision,
		"io.modelcontextprotocol/clientCapabilities": capabilities,
		"io.modelcontextprotocol/clientInfo":         object{"name": "e2e", "version": "1"},
	}
	headers := []string{"Accept: application/json, text/event-stream", "MCP-Protocol-Version: " + revision, "Mcp-Method: " + method}
	for _, key := range []string{"name", "taskId"} {
		if name, ok := params[key].(string); ok {
			headers = append(headers, "Mcp-Name: "+name)
		}
	}
	return s.call("POST", "/mcp", object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers...)
}

func (s *site) tool(name string, arguments object, tasks bool) answer {
	return s.rpc("tools/call", object{"name": name, "arguments": arguments}, tasks)
}

// A client that knows the Tasks extension follows the receipt as a task, for
// every tool that may leave work in flight; another gets the plain receipt.
func TestTasksExtensionFollowsReceipts(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay")
	plain := s.tool("corpus_create", object{"genre": "wiki", "title": "Plain", "body": "x", "wait_seconds": 0}, false)
	if plain.at("result.structuredContent.indexed") != false || plain.text("result.structuredContent.index_job_id") == "" {
		t.Fatalf("without the extension: %s", plain.raw)
	}
	id := plain.text("result.structuredContent.note.id")
	calls := []struct {
		tool      string
		arguments object
	}{
		{"corpus_create", object{"genre": "raw", "body": "as a task"}},
		{"corpus_update", object{"id": id, "body": "y"}},
		{"corpus_promote", object{"id": id}},
		{"corpus_delete", object{"id": id}},
		{"corpus_restore", object{"id": id}},
	}
	receipts := map[string]string{}
	for _, c := range calls {
		c.arguments["wait_seconds"] = 0
		a := s.tool(c.tool, c.arguments, true)
		if a.text("result.resultType") != "task" || a.text("result.status") != "working" {
			t.Fatalf("%s: %s", c.tool, a.raw)
		}
		receipt := a.text("result.taskId")
		receipts[c.tool] = receipt
		if state := s.must("GET", "/v1/tasks/"+receipt, nil).text("task.state"); state != "pending" {
			t.Errorf("%s: its receipt is %s over HTTP", c.tool, state)
		}
		if r := s.stranger("other"+strings.ReplaceAll(c.tool, "_", "")).rpc("tasks/get", object{"taskId": receipt}, true); r.at("error.code") != -32602.0 {
			t.Errorf("%s: another owner's task: %s", c.tool, r.raw)
		}
	}
	s.start("workers")
	for tool, receipt := range receipts {
		completes(s, receipt)
		a := s.rpc("tasks/get", object{"taskId": receipt}, true)
		if a.text("result.status") != "completed" || a.at("result.result.structuredContent.indexed") != true || a.text("result.result.structuredContent.index_job_id") != receipt {
			t.Errorf("%s: %s", tool, a.raw)
		}
	}
}

// What clients really send, and what they must get (cases P4 and P5), on the
// real catalog and through the gateway.
func TestClientsOddCalls(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	call := func(params object) answer {
		return s.call("POST", "/mcp", object{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
			"Accept: application/json, text/event-stream")
	}
	for _, params := range []object{
		{"name": "tasks.overview"}, {"name": "tasks.overview", "arguments": nil}, {"name": "tasks_overview", "arguments": object{"kind": nil}},
	} {
		if a := call(params); a.at("result.structuredContent.kinds") == nil || a.at("result.isError") == true {
			t.Errorf("%v: %s", params, a.raw)
		}
	}
	parent := s.create(object{"genre": "wiki", "title": "Parent", "body": "p"}).text("note.id")
	odd := call(object{"name": "corpus.create", "arguments": object{"genre": "wiki", "title": "00713", "body": "x", "tags": `["a","b"]`, "parent_id": parent}})
	if odd.text("result.structuredContent.note.title") != "00713" || len(odd.at("result.structuredContent.note.tags").([]any)) != 2 {
		t.Errorf("title and tags: %s", odd.raw)
	}
	id := odd.text("result.structuredContent.note.id")
	kept := call(object{"name": "corpus.update", "arguments": object{"genre": "wiki", "id": id, "title": "t", "body": "b", "parent_id": nil}})
	if kept.text("result.structuredContent.note.parent_id") != parent {
		t.Errorf("a null parent: %s", kept.raw)
	}
	if a := call(object{"name": "corpus.list", "arguments": object{"genre": "wiki", "limit": "1"}}); len(a.at("result.structuredContent.items").([]any)) != 1 {
		t.Errorf("limit as text: %s", a.raw)
	}
	empty := call(object{"name": "corpus.create", "arguments": object{"genre": "wiki", "title": "", "body": ""}})
	if empty.at("result.isError") != true || !strings.Contains(empty.raw, "title") {
		t.Errorf("no title: %s", empty.raw)
	}
	if a := call(object{"name": "no_such_tool", "arguments": object{}}); a.at("error.code") != -32602.0 {
		t.Errorf("no such tool: %s", a.raw)
	}
	if n := s.count(`SELECT count(*) FROM notes`); n != 2 {
		t.Errorf("%d notes", n)
	}
	for _, c := range []struct {
		method, body string
		headers      []string
		status       int
	}{
		{"GET", "", []string{"Accept: text/event-stream"}, 405},
		{"DELETE", "", nil, 405},
		{"POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, []string{"Accept: application/json, text/event-stream"}, 202},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2099-01-01","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, []string{"Accept: application/json"}, 200},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{"Origin: https://evil.example.test"}, 403},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		a := s.call(c.method, "/mcp", body, c.headers...)
		if a.status != c.status || c.status == 405 && a.header.Get("Allow") == "" || c.status == 202 && a.raw != "" || strings.Contains(a.raw, "2099") {
			t.Errorf("%s %s: %d %v %s", c.method, c.body, a.status, a.header, a.raw)
		}
	}
	for _, body := range []string{"[]", "null", `{"jsonrpc":"2.0","id":1,"method":"no/such"}`, "{", `"x"`} {
		a := s.call("POST", "/mcp", body, "Accept: application/json, text/event-stream")
		if a.status >= 500 || a.at("error.code") == nil {
			t.Errorf("%s: %d %s", body, a.status, a.raw)
		}
	}
}

// The official TypeScript client creates, searches, follows a receipt and
// deletes.
func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("there is no npm on this machine: the TypeScript client was not tried")
	}
	s := newSite(t, "gateway,relay,workers")
	dir := t.TempDir()
	source := filepath.Join("..", "..", "functions", "mcp", "testdata", "conformance")
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "client.mjs", "node20.mjs"} {
		raw, err := os.ReadFile(filepath.Join(source, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o600)
		}
		if err != nil && (name != ".npmrc" || !os.IsNotExist(err)) {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	client := exec.CommandContext(t.Context(), "node", "client.mjs")
	client.Dir = dir
	client.Env = append(os.Environ(), "MCP_URL="+s.base+"/mcp", "MCP_TOKEN="+s.token)
	var said bytes.Buffer
	client.Stderr = &said
	out, err := client.Output()
	var report struct {
		Tools int
		First object
	}
	lines := slices.Collect(strings.Lines(strings.TrimSpace(string(out))))
	if err != nil || len(lines) == 0 || json.Unmarshal([]byte(lines[len(lines)-1]), &report) != nil || report.Tools == 0 || report.First["indexed"] != true {
		t.Errorf("%v\n%s\n%s", err, out, &said)
	}
}
