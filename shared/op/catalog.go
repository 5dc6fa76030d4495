package op

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Catalog is a set of operations whose names collide on no face.
type Catalog struct {
	ops    []*Operation
	byName map[string]*Operation
	byTool map[string]*Operation
}

// NewCatalog panics if two operations would have the same name, route, tool name
// in either spelling, or function name.
func NewCatalog(ops ...*Operation) Catalog {
	c := Catalog{ops: slices.Clone(ops), byName: map[string]*Operation{}, byTool: map[string]*Operation{}}
	mux := http.NewServeMux()
	functions := map[string]*Operation{}
	claim := func(names map[string]*Operation, name string, o *Operation) {
		if other, ok := names[name]; ok && other != o {
			panic(fmt.Sprintf("op: %s and %s are both %q", other.spec.Name, o.spec.Name, name))
		}
		names[name] = o
	}
	for _, o := range c.ops {
		if c.byName[o.spec.Name] != nil {
			panic(fmt.Sprintf("op: %s twice", o.spec.Name))
		}
		claim(c.byName, o.spec.Name, o)
		claim(functions, o.function(), o)
		// also of those that aren't tools: they may become one
		claim(c.byTool, o.ToolName(true), o)
		claim(c.byTool, o.ToolName(false), o)
		// panics on patterns that conflict, and says which
		mux.Handle(o.spec.Method+" "+o.spec.Path, http.NotFoundHandler())
	}
	return c
}

// Ops are the operations in the order of NewCatalog.
func (c Catalog) Ops() []*Operation { return slices.Clone(c.ops) }

// ByName finds an operation by its dotted name; nil if there is none.
func (c Catalog) ByName(name string) *Operation { return c.byName[name] }

// ByTool finds a tool by either spelling of its name; nil if there is none.
func (c Catalog) ByTool(name string) *Operation {
	if o := c.byTool[name]; o != nil && o.spec.Tool != nil {
		return o
	}
	return nil
}

// Function is one operation as it is deployed.
type Function struct {
	// Operation is what the function's _HANDLER says.
	Operation string `json:"operation"`
	// Name is the function's name: the operation's with hyphens.
	Name   string `json:"name"`
	Method string `json:"method"`
	// Path is the route in API Gateway's syntax: "/v1/notes/{path+}".
	Path   string `json:"path"`
	Access string `json:"access"`
	Scope  string `json:"scope,omitempty"`
	// WaitMS is how long it may wait for other work.
	WaitMS int64 `json:"wait_ms"`
	// TimeoutS is the function's own limit, a second above its handler's.
	TimeoutS int  `json:"timeout_s"`
	MemoryMB int  `json:"memory_mb"`
	Tool     bool `json:"tool"`
}

func (o *Operation) function() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(o.spec.Name)
}

// Manifest lists the functions by name.
func (c Catalog) Manifest() []Function {
	out := make([]Function, 0, len(c.ops))
	for _, o := range c.ops {
		s := o.spec
		out = append(out, Function{
			Operation: s.Name, Name: o.function(), Method: s.Method, Path: strings.ReplaceAll(s.Path, "...}", "+}"),
			Access: s.Access.String(), Scope: s.Scope, WaitMS: s.MaxWait.Milliseconds(),
			TimeoutS: int(math.Ceil((s.Timeout + time.Second).Seconds())), MemoryMB: s.Memory, Tool: s.Tool != nil,
		})
	}
	slices.SortFunc(out, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return out
}
