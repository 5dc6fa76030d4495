package op

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// kind is what a value is in JSON.
type kind string

const (
	kindString  kind = "string"
	kindInteger kind = "integer"
	kindNumber  kind = "number"
	kindBoolean kind = "boolean"
	kindArray   kind = "array"
	kindObject  kind = "object"
	kindMap     kind = "map" // an object with any keys
	kindAny     kind = "any"
)

// wrap is how a Go type says that a value may be missing.
type wrap int

const (
	plain wrap = iota
	pointer
	opt
)

// shape is a Go type, compiled once, with the rules of the field that holds it.
// The decoder, the encoder and the schemas all read it.
type shape struct {
	kind kind
	typ  reflect.Type // without wrap
	wrap wrap
	// text: the value is read by encoding.TextUnmarshaler
	text   bool
	format string
	elem   *shape
	fields *table
	rules  rules
	// fix: a value may need a change before it is encoded
	fix bool
}

type rules struct {
	enum               []string
	minimum, maximum   *float64
	minLength          int
	maxLength, maxSize *int
}

// source is where HTTP carries a field.
type source int

const (
	inBody source = iota
	inPath
	inQuery
	inHeader
)

type field struct {
	name        string
	description string
	index       []int
	// control: it belongs to controls, not to the input
	control  bool
	shape    *shape
	required bool
	// omit: its zero value is left out of an answer
	omit  bool
	def   []byte
	in    source
	param string // its name there
}

type table struct {
	fields []*field
	byName map[string]int
	// byQuery are the fields that a query may hold
	byQuery map[string]int
}

var (
	timeType = reflect.TypeFor[time.Time]()
	uuidType = reflect.TypeFor[uuid.UUID]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonType = reflect.TypeFor[json.Marshaler]()
)

// shapeOf compiles t with the rules in tag. within are the structs around it: a
// type that holds itself has no schema without references.
func shapeOf(t reflect.Type, tag reflect.StructTag, within []reflect.Type) (s *shape, err error) {
	s = &shape{typ: t}
	switch {
	case t.Implements(optType):
		f, _ := t.FieldByName("Value")
		s.wrap, s.typ = opt, f.Type
	case t.Kind() == reflect.Pointer:
		s.wrap, s.typ = pointer, t.Elem()
	}
	t = s.typ
	if s.wrap != plain && (t.Kind() == reflect.Pointer || t.Implements(optType)) {
		return nil, fmt.Errorf("%s is optional twice", t)
	}
	switch k := t.Kind(); {
	case t == rawType:
		s.kind = kindAny
	case t == timeType:
		s.kind, s.text, s.format, s.fix = kindString, true, "date-time", true
	case t == uuidType:
		s.kind, s.text, s.format = kindString, true, "uuid"
	case reflect.PointerTo(t).Implements(textType):
		s.kind, s.text = kindString, true
	case t.Implements(jsonType) || reflect.PointerTo(t).Implements(jsonType):
		return nil, fmt.Errorf("%s encodes itself, so its schema isn't known", t)
	case k == reflect.String:
		s.kind = kindString
	case k == reflect.Bool:
		s.kind = kindBoolean
	case k >= reflect.Int && k <= reflect.Uint64:
		s.kind = kindInteger
	case k == reflect.Float64:
		s.kind = kindNumber
	case k == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s.kind, s.fix = kindArray, true
		s.elem, err = shapeOf(t.Elem(), elementRules(tag), within)
	case k == reflect.Map && t.Key().Kind() == reflect.String:
		s.kind, s.fix = kindMap, true
		s.elem, err = shapeOf(t.Elem(), elementRules(tag), within)
	case k == reflect.Struct && slices.Contains(within, t):
		return nil, fmt.Errorf("%s holds itself", t)
	case k == reflect.Struct:
		s.kind = kindObject
		if s.fields, err = tableOf(t, append(within, t)); err == nil {
			s.fix = slices.ContainsFunc(s.fields.fields, func(f *field) bool { return f.shape.fix })
		}
	default:
		return nil, fmt.Errorf("%s has no JSON form here", t)
	}
	if err != nil {
		return nil, err
	}
	return s, s.readRules(tag)
}

// elementRules keeps of a list's tag what is meant for its items.
func elementRules(tag reflect.StructTag) reflect.StructTag {
	var kept []string
	for _, key := range []string{"enum", "minimum", "maximum", "minLength", "maxLength"} {
		if v, ok := tag.Lookup(key); ok {
			kept = append(kept, key+":"+strconv.Quote(v))
		}
	}
	return reflect.StructTag(strings.Join(kept, " "))
}

func (s *shape) readRules(tag reflect.StructTag) error {
	number := func(key string, into **float64) error {
		v, ok := tag.Lookup(key)
		if !ok {
			return nil
		}
		f, err := strconv.ParseFloat(v, 64)
		*into = &f
		return err
	}
	length := func(key string, into **int) error {
		v, ok := tag.Lookup(key)
		if !ok {
			return nil
		}
		n, err := strconv.Atoi(v)
		*into = &n
		return err
	}
	for key, kinds := range map[string]string{
		"enum": "string array map", "minLength": "string array map", "maxLength": "string array map",
		"minimum": "integer number array map", "maximum": "integer number array map", "maxItems": "array map",
	} {
		if _, ok := tag.Lookup(key); ok && !slices.Contains(strings.Fields(kinds), string(s.kind)) {
			return fmt.Errorf("%s means nothing for %s", key, s.typ)
		}
	}
	r := &s.rules
	switch s.kind {
	case kindString:
		var least *int
		if v, ok := tag.Lookup("enum"); ok {
			r.enum = strings.Split(v, ",")
		}
		if err := cmp.Or(length("minLength", &least), length("maxLength", &r.maxLength)); err != nil {
			return err
		}
		if least != nil {
			r.minLength = *least
		}
	case kindInteger, kindNumber:
		return cmp.Or(number("minimum", &r.minimum), number("maximum", &r.maximum))
	case kindArray, kindMap:
		return length("maxItems", &r.maxSize)
	}
	return nil
}

func tableOf(t reflect.Type, within []reflect.Type) (*table, error) {
	tb := &table{byName: map[string]int{}, byQuery: map[string]int{}}
	for _, sf := range reflect.VisibleFields(t) {
		tag, tagged := sf.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case sf.Anonymous && !tagged && sf.Type.Kind() == reflect.Struct:
			continue // its fields are visible as fields of t
		case name == "-" || !sf.IsExported():
			continue
		case sf.Anonymous || name == "":
			return nil, fmt.Errorf("%s.%s has no json name", t, sf.Name)
		}
		s, err := shapeOf(sf.Type, sf.Tag, within)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		opts := strings.Split(options, ",")
		f := &field{
			name: name, param: name, description: sf.Tag.Get("jsonschema"), index: sf.Index, shape: s,
			omit: slices.Contains(opts, "omitempty") || slices.Contains(opts, "omitzero"),
		}
		f.required = !f.omit && s.wrap == plain
		if s.wrap == opt && !slices.Contains(opts, "omitzero") {
			return nil, fmt.Errorf("%s: an Opt needs omitzero", name)
		}
		if def, ok := sf.Tag.Lookup("default"); ok {
			f.def, f.required = []byte(def), false
			if s.kind == kindString {
				f.def, _ = json.Marshal(def)
			}
			d := decoder{}
			d.value(s, reflect.New(sf.Type).Elem(), f.def, &place{name: name})
			if !json.Valid(f.def) || d.faults != nil {
				return nil, fmt.Errorf("%s: its own default %s is refused", name, f.def)
			}
		}
		for in, key := range map[source]string{inPath: "path", inQuery: "query", inHeader: "header"} {
			if param, ok := sf.Tag.Lookup(key); ok {
				f.in, f.param = in, param
			}
		}
		if err := tb.add(f); err != nil {
			return nil, err
		}
	}
	return tb, nil
}

func (tb *table) add(f *field) error {
	if _, ok := tb.byName[f.name]; ok {
		return fmt.Errorf("%s twice", f.name)
	}
	tb.byName[f.name] = len(tb.fields)
	tb.fields = append(tb.fields, f)
	return nil
}

// inputTable is the table of an operation's input: the fields of t, the controls
// that it uses (with their descriptions), and where HTTP carries each.
func inputTable(t reflect.Type, method string, use map[string]string) (*table, error) {
	tb, err := tableOf(t, []reflect.Type{t})
	if err != nil {
		return nil, err
	}
	extra, err := tableOf(reflect.TypeFor[controls](), nil)
	if err != nil {
		return nil, err
	}
	for _, f := range extra.fields {
		if text, ok := use[f.name]; ok {
			f.control, f.description = true, cmp.Or(text, f.description)
			if err := tb.add(f); err != nil {
				return nil, err
			}
		}
	}
	bodiless := method == http.MethodGet || method == http.MethodHead || method == http.MethodDelete
	for i, f := range tb.fields {
		if f.in == inBody && bodiless {
			f.in = inQuery
		}
		if f.in == inQuery || f.name == "wait_seconds" && f.control {
			if _, ok := tb.byQuery[f.param]; ok {
				return nil, fmt.Errorf("query parameter %s twice", f.param)
			}
			tb.byQuery[f.param] = i
		}
		s := f.shape
		if s.kind == kindArray && f.in == inQuery {
			s = s.elem
		}
		if f.in != inBody && (s.kind == kindArray || s.kind == kindObject || s.kind == kindMap || s.kind == kindAny) {
			return nil, fmt.Errorf("%s can't be carried in a path, query or header", f.name)
		}
	}
	return tb, nil
}
