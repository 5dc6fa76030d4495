package op

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"standmeet/shared/auth"
)

// Info heads an OpenAPI document.
type Info struct {
	Title, Version, Description string
	// Server is the base URL of the routes; empty is where the document came from.
	Server string
}

// object marshals with sorted keys, which keeps the document the same from one
// run to the next.
type object map[string]any

// OpenAPI is the catalog as an OpenAPI 3.1 document in JSON, indented, and the
// same bytes for the same catalog.
func (c Catalog) OpenAPI(info Info) ([]byte, error) {
	paths := object{}
	for _, o := range c.ops {
		route := strings.ReplaceAll(o.spec.Path, "...}", "}")
		item, ok := paths[route].(object)
		if !ok {
			item = object{}
			paths[route] = item
		}
		item[strings.ToLower(o.spec.Method)] = o.openAPI()
	}
	about := object{"title": info.Title, "version": info.Version}
	if info.Description != "" {
		about["description"] = info.Description
	}
	doc := object{
		"openapi": "3.1.0",
		"info":    about,
		"paths":   paths,
		"components": object{
			"securitySchemes": object{
				"bearer":  object{"type": "http", "scheme": "bearer"},
				"session": object{"type": "apiKey", "in": "cookie", "name": auth.SessionCookie},
			},
			"schemas": object{"Problem": problemSchema()},
			"responses": object{"Problem": object{
				"description": "The request failed; code says why.",
				"headers": object{"Retry-After": object{
					"description": "Seconds after which a repetition may succeed.", "schema": object{"type": "integer"},
				}},
				"content": object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
			}},
		},
	}
	if info.Server != "" {
		doc["servers"] = []object{{"url": info.Server}}
	}
	return json.MarshalIndent(doc, "", "  ")
}

func (o *Operation) openAPI() object {
	s := o.spec
	family, _, _ := strings.Cut(s.Name, ".")
	success := object{"description": "Success."}
	switch {
	case o.file:
		success["content"] = object{s.Produces: object{"schema": object{}}}
	case s.Status != http.StatusNoContent:
		success["content"] = object{"application/json": object{"schema": o.result}}
	}
	if len(s.Headers) > 0 {
		headers := object{}
		for _, h := range s.Headers {
			headers[h.Name] = object{"description": h.Description, "schema": object{"type": "string"}}
		}
		success["headers"] = headers
	}
	out := object{
		"operationId": s.Name,
		"tags":        []string{family},
		"summary":     s.Summary,
		"responses": object{
			strconv.Itoa(s.Status): success,
			"default":              object{"$ref": "#/components/responses/Problem"},
		},
		"security": []object{},
	}
	if s.Description != "" {
		out["description"] = s.Description
	}
	if s.Access != Public {
		security := []object{{"bearer": []string{}}, {"session": []string{}}}
		if s.Access == Guest {
			security = append(security, object{})
		}
		out["security"] = security
		out["x-scope"] = s.Scope
	}
	if params := o.parameters(); len(params) > 0 {
		out["parameters"] = params
	}
	if len(o.body.Properties) > 0 {
		content := object{"application/json": object{"schema": o.body}}
		for _, media := range s.Uploads {
			content[media] = object{"schema": object{}}
		}
		if s.Uploads != nil {
			form := *o.body
			form.Properties, form.Required = maps.Clone(form.Properties), nil
			form.Properties["file"] = &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", ContentEncoding: "binary"},
				Description: "Files, in parts with any name and with a filename, which may have folders."}
			content["multipart/form-data"] = object{"schema": &form}
		}
		out["requestBody"] = object{"required": len(o.body.Required) > 0, "content": content}
	}
	return out
}

func (o *Operation) parameters() []object {
	var params []object
	add := func(in string, f *field, required bool) {
		schema := f.shape.schema(forArgs)
		schema.Default = f.def
		p := object{"name": f.param, "in": in, "required": required, "schema": schema}
		if f.description != "" {
			p["description"] = f.description
		}
		params = append(params, p)
	}
	for i, f := range o.input.fields {
		switch f.in {
		case inPath:
			add("path", f, true)
		case inHeader:
			add("header", f, f.required)
		}
		if at, ok := o.input.byQuery[f.param]; ok && at == i {
			add("query", f, f.required)
		}
	}
	if o.spec.MaxWait > 0 {
		params = append(params, object{
			"name": "Prefer", "in": "header", "required": false, "schema": object{"type": "string"}, "example": "wait=0",
			"description": "wait=N is wait_seconds as RFC 7240 has it; wait_seconds wins. Preference-Applied says what was applied.",
		})
	}
	return params
}

func problemSchema() *jsonschema.Schema {
	text := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: description}
	}
	object := func(order []string, optional string, properties map[string]*jsonschema.Schema) *jsonschema.Schema {
		return &jsonschema.Schema{
			Type: "object", Properties: properties, PropertyOrder: order,
			Required: slices.DeleteFunc(slices.Clone(order), func(name string) bool { return name == optional }),
		}
	}
	return object([]string{"type", "title", "status", "code", "detail", "instance", "errors"}, "instance", map[string]*jsonschema.Schema{
		"type":     text("/problems/ and the code."),
		"title":    text("The standard phrase of the status."),
		"status":   {Type: "integer"},
		"code":     text("Stable, for programs."),
		"detail":   text("One sentence, for people."),
		"instance": text("Names the request in the log."),
		"errors": {Type: "array", Items: object([]string{"field", "code", "detail"}, "", map[string]*jsonschema.Schema{
			"field": text("The path of the field, for example tags[2]."), "code": text(""), "detail": text(""),
		})},
	})
}
