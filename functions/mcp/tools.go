package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"standmeet/shared/fault"
	"standmeet/shared/op"
)

// describe is an operation as a listing shows it.
func (e *endpoint) describe(p *op.Operation, dotted bool) *sdk.Tool {
	spec := p.Spec()
	spell := func(text string) string { return e.spell(text, dotted) }
	return &sdk.Tool{
		Name:         p.ToolName(dotted),
		Title:        spec.Summary,
		Description:  spell(spec.Description),
		InputSchema:  encoded(p.InputSchema(), spell),
		OutputSchema: encoded(p.OutputSchema(), spell),
		Annotations: &sdk.ToolAnnotations{
			Title:           spec.Summary,
			ReadOnlyHint:    spec.Tool.ReadOnly,
			DestructiveHint: &spec.Tool.Destructive,
			IdempotentHint:  spec.Tool.Idempotent,
			OpenWorldHint:   &spec.Tool.OpenWorld,
		},
	}
}

// encoded is a schema as it is sent: the SDK would encode it anew for every
// listing, and at every call to look for mirrored headers.
func encoded(s *jsonschema.Schema, spell func(string) string) json.RawMessage {
	s = s.CloneSchemas() // the operation's own is shared
	respell(s, spell)
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // op has published it in the same form
	}
	return b
}

// respell rewrites the descriptions of a schema that op made.
func respell(s *jsonschema.Schema, spell func(string) string) {
	if s == nil {
		return
	}
	s.Description = spell(s.Description)
	respell(s.Items, spell)
	respell(s.AdditionalProperties, spell)
	for _, p := range s.Properties {
		respell(p, spell)
	}
}

// tool runs an operation for a tools/call.
func (e *endpoint) tool(p *op.Operation) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		c, most := callOf(ctx), p.Spec().MaxBody
		if int64(len(req.Params.Arguments)) > most {
			return failure(c, fault.New(fault.TooLarge, "body_too_large", fmt.Sprintf("The arguments may have %d bytes at most.", most))), nil
		}
		info := c.info
		if c.progressToken != nil {
			info.Progress = progress(ctx, req.Session, c.progressToken)
		}
		res, err := e.Server.Call(c.ctx, p, c.caller, req.Params.Arguments, info)
		if err != nil {
			return failure(c, err), nil
		}
		if r, ok := res.Value.(Receipted); ok {
			c.receipt = r.PendingReceipt()
		}
		return result(res.Say, res.JSON), nil
	}
}

// progress tells the client how far a call has come. The protocol wants each
// number to be larger than the one before.
func progress(ctx context.Context, session *sdk.ServerSession, token any) op.Progress {
	var mu sync.Mutex
	last := -1.0
	return func(done, total float64, note string) {
		mu.Lock()
		defer mu.Unlock()
		if done <= last {
			return
		}
		last = done
		// a client that hung up doesn't end the work
		_ = session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: total, Message: note})
	}
}

// result is a tool's answer: the JSON, for clients that read it as structured,
// and for those that only show text to a model.
func result(say string, body json.RawMessage) *sdk.CallToolResult {
	res := &sdk.CallToolResult{StructuredContent: body}
	if say != "" {
		res.Content = append(res.Content, &sdk.TextContent{Text: say})
	}
	res.Content = append(res.Content, &sdk.TextContent{Text: string(body)})
	return res
}

// failure is a refusal as a model should see it. The problem is text and not
// structuredContent, because that has to match the tool's output schema:
// the TypeScript client throws at anything else, also with isError.
func failure(c *call, err error) *sdk.CallToolResult {
	f := fault.From(err)
	problem, _ := json.Marshal(f.Problem(c.info.RequestID)) // a struct of strings
	say := f.Detail
	for _, field := range f.Fields {
		if line := field.Name + ": " + field.Detail; field.Detail == say {
			say = line
		} else {
			say += " " + line
		}
	}
	if s := f.RetrySeconds(); s > 0 { // Retry-After, on HTTP
		say += fmt.Sprintf(" Try again in %d s.", s)
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{
		&sdk.TextContent{Text: say}, &sdk.TextContent{Text: string(problem)},
	}}
}

// receive stands before every method of the SDK.
func (e *endpoint) receive(dotted bool) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if strings.HasPrefix(method, "tasks/") && !declaresTasks(req) {
				return nil, undeclared()
			}
			if p, ok := req.GetParams().(*sdk.CallToolParamsRaw); ok {
				if o := e.cat.ByTool(p.Name); o != nil {
					p.Name = o.ToolName(dotted)
				}
			}
			res, err := next(ctx, method, req)
			if err != nil {
				return nil, err
			}
			c := callOf(ctx)
			switch r := res.(type) {
			case *sdk.ListToolsResult:
				r.Tools = slices.DeleteFunc(r.Tools, func(t *sdk.Tool) bool {
					return !c.caller.Allows(e.cat.ByTool(t.Name).Spec().Scope)
				})
			case *sdk.CallToolResult:
				if c.receipt != "" && declaresTasks(req) {
					return e.handle(c, r), nil
				}
			}
			return res, nil
		}
	}
}
