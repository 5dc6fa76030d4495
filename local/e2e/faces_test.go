package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"standmeet/functions"
	"standmeet/shared/op"
)

// catalog declares every operation; nothing of it is called here.
func catalog() op.Catalog { return functions.Catalog(functions.Deps{}) }

// faces are how an owner can call an operation.
var faces = []string{"http", "mcp"}

// over calls an operation by its name and arguments, over HTTP or MCP. What MCP
// answers is put as HTTP says it: the status, and the answer or problem as body.
func (s *site) over(face, name string, arguments object) answer {
	s.Helper()
	o := catalog().ByName(name)
	if o == nil {
		s.Fatalf("there is no operation %s", name)
	}
	if face == "mcp" {
		return s.asHTTP(s.tool(o.ToolName(false), arguments, false), o.Spec())
	}
	path, body, headers := request(o, arguments)
	return s.call(o.Spec().Method, path, body, headers...)
}

// request is the HTTP request for arguments as a tool takes them.
func request(o *op.Operation, arguments object) (path string, payload any, headers []string) {
	spec := o.Spec()
	path = spec.Path
	query, body := url.Values{}, object{}
	inQuery := spec.Method == http.MethodGet || spec.Method == http.MethodDelete
	for name, v := range arguments {
		switch {
		case name == "wait_seconds":
			headers = append(headers, fmt.Sprintf("Prefer: wait=%v", v))
		case name == "idempotency_key":
			headers = append(headers, fmt.Sprintf("Idempotency-Key: %v", v))
		case strings.Contains(path, "{"+name+"}"):
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(fmt.Sprint(v)))
		case strings.Contains(path, "{"+name+"...}"):
			path = strings.ReplaceAll(path, "{"+name+"...}", fmt.Sprint(v))
		case inQuery:
			query.Set(name, fmt.Sprint(v))
		default:
			body[name] = v
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if !inQuery {
		payload = body
	}
	return path, payload, headers
}

// asHTTP unwraps the answer to tools/call.
func (s *site) asHTTP(a answer, spec op.Spec) answer {
	s.Helper()
	content, _ := a.at("result.content").([]any)
	if a.at("result.isError") != true || len(content) == 0 {
		body, _ := a.at("result.structuredContent").(object)
		if body == nil {
			s.Errorf("%s over MCP: %d %v %s", spec.Name, a.status, a.err, a.raw)
		}
		return answer{status: spec.Status, header: a.header, body: body, raw: a.raw, took: a.took, ended: a.ended}
	}
	problem := answer{header: a.header, raw: a.raw, took: a.took, ended: a.ended}
	last, _ := content[len(content)-1].(object)
	problem.err = json.Unmarshal([]byte(answer{body: last}.text("text")), &problem.body)
	status, _ := problem.at("status").(float64)
	problem.status = int(status)
	return problem
}

// items of a list.
func (a answer) items() (all []answer) {
	list, _ := a.at("items").([]any)
	for _, item := range list {
		o, _ := item.(object)
		all = append(all, answer{body: o})
	}
	return all
}

// pages walks a list to its end and gives the ids in their order.
func (s *site) pages(face, name string, arguments object, limit int) (ids []string) {
	s.Helper()
	with := object{"limit": limit}
	for k, v := range arguments {
		with[k] = v
	}
	for range 1000 {
		a := s.over(face, name, with)
		if a.status != 200 {
			s.Fatalf("%s %v over %s: %d %s", name, with, face, a.status, a.raw)
		}
		for _, item := range a.items() {
			ids = append(ids, item.text("id"))
		}
		cursor := a.text("next_cursor")
		if cursor == "" {
			if total, _ := a.at("total").(float64); int(total) != len(ids) {
				s.Errorf("%s %v over %s: %d listed of %v", name, arguments, face, len(ids), total)
			}
			return ids
		}
		if len(a.items()) != limit {
			s.Errorf("%s %v over %s: a page of %d that is not the last", name, with, face, len(a.items()))
		}
		with["cursor"] = cursor
	}
	s.Fatalf("%s %v over %s has no end", name, arguments, face)
	return nil
}
