package op

import (
	"math"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
)

// face is who a schema is for.
type face int

const (
	forArgs   face = iota // of a tool: null is tolerated, not offered
	forBody               // of HTTP: null clears
	forResult             // of an answer: it may gain fields
)

func (s *shape) schema(to face) *jsonschema.Schema {
	r := &s.rules
	out := &jsonschema.Schema{Type: string(s.kind), Format: s.format}
	switch s.kind {
	case kindAny:
		out.Type, out.Types = "", []string{"object", "array", "string", "number", "boolean", "null"}
		return out
	case kindString:
		for _, v := range r.enum {
			out.Enum = append(out.Enum, v)
		}
		if r.minLength > 0 {
			out.MinLength = &r.minLength
		}
		out.MaxLength = r.maxLength
	case kindInteger, kindNumber:
		out.Minimum, out.Maximum = r.minimum, r.maximum
		if least, most := intRange(s.typ.Kind()); s.kind == kindInteger {
			if out.Minimum == nil {
				out.Minimum = least
			}
			if out.Maximum == nil {
				out.Maximum = most
			}
		}
	case kindArray:
		out.Items, out.MaxItems = s.elem.schema(to), r.maxSize
	case kindMap:
		out.Type = string(kindObject)
		out.AdditionalProperties, out.MaxProperties = s.elem.schema(to), r.maxSize
	case kindObject:
		out = s.fields.schema(to, func(*field) bool { return true })
	}
	if s.wrap == pointer && to == forResult || s.wrap != plain && to == forBody {
		out.Types, out.Type = []string{out.Type, "null"}, ""
		if out.Enum != nil {
			out.Enum = append(out.Enum, nil)
		}
	}
	return out
}

// intRange is the range that a Go integer has and JSON's integers have not;
// 64 bits are left out, as no float says them exactly.
func intRange(k reflect.Kind) (least, most *float64) {
	bits := map[reflect.Kind]float64{reflect.Int8: 8, reflect.Int16: 16, reflect.Int32: 32, reflect.Uint8: 8, reflect.Uint16: 16, reflect.Uint32: 32}[k]
	unsigned := k >= reflect.Uint
	if unsigned {
		least = new(float64)
	}
	if bits > 0 {
		if !unsigned {
			bits--
			low := -math.Exp2(bits)
			least = &low
		}
		high := math.Exp2(bits) - 1
		most = &high
	}
	return least, most
}

func (t *table) schema(to face, include func(*field) bool) *jsonschema.Schema {
	out := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	if to != forResult {
		out.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, f := range t.fields {
		if !include(f) {
			continue
		}
		s := f.shape.schema(to)
		if to == forResult && f.shape.wrap == pointer && f.omit {
			s.Type, s.Types = s.Types[0], nil
			s.Enum = s.Enum[:max(len(s.Enum)-1, 0):max(len(s.Enum)-1, 0)]
			if len(s.Enum) == 0 {
				s.Enum = nil
			}
		}
		s.Description, s.Default = f.description, f.def
		out.Properties[f.name] = s
		out.PropertyOrder = append(out.PropertyOrder, f.name)
		if to == forResult && !f.omit || to != forResult && f.required {
			out.Required = append(out.Required, f.name)
		}
	}
	return out
}
