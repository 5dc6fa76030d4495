package op

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"standmeet/shared/fault"
)

// maxFaults bounds how many faults of one request are told.
const maxFaults = 20

// place is where a value stands in the input; it becomes text only in a fault.
type place struct {
	above *place
	name  string
	index int // of an item, when name is empty
}

func (p *place) String() string {
	switch {
	case p.name == "":
		return fmt.Sprintf("%s[%d]", p.above, p.index)
	case p.above == nil:
		return p.name
	}
	return p.above.String() + "." + p.name
}

// decoder fills an input and gathers what is wrong with it.
type decoder struct {
	lenient bool
	faults  []fault.Field
}

func (d *decoder) refuse(at *place, code, format string, args ...any) {
	if len(d.faults) < maxFaults {
		name := at.String()
		d.faults = append(d.faults, fault.Field{Name: name, Code: code, Detail: name + " " + fmt.Sprintf(format, args...) + "."})
	}
}

// err is the fault for everything that was refused.
func (d *decoder) err() error {
	if len(d.faults) == 0 {
		return nil
	}
	f := &fault.Fault{Kind: fault.Invalid, Code: d.faults[0].Code, Detail: d.faults[0].Detail, Fields: d.faults}
	for _, other := range d.faults[1:] {
		if other.Code != f.Code {
			f.Code = "invalid_request"
		}
	}
	switch n := len(d.faults) - 1; {
	case n == 1:
		f.Detail += " There is 1 more fault."
	case n > 1:
		f.Detail += fmt.Sprintf(" There are %d more faults.", n)
	}
	return f
}

// checkJSON refuses what is not one JSON text in UTF-8. After it the functions
// below may trust the grammar.
func checkJSON(b []byte) error {
	if json.Valid(b) && utf8.Valid(b) {
		return nil
	}
	detail := "The JSON is not UTF-8."
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(b, &json.RawMessage{}), &syntax) {
		detail = fmt.Sprintf("The JSON is malformed at byte %d.", syntax.Offset)
	}
	return fault.New(fault.Invalid, "malformed_json", detail)
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd is the index after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(b[i:], '"')
		n := i
		for b[n-1] == '\\' {
			n--
		}
		if (i-n)%2 == 0 {
			return i + 1
		}
	}
}

// valueEnd is the index after the value that begins at i.
func valueEnd(b []byte, i int) int {
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			i++
			continue
		default:
			for i++; i < len(b) && strings.IndexByte(",:]} \n\t\r", b[i]) < 0; {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// members calls f for each member of an object, its name still quoted.
func members(b []byte, f func(name, value []byte)) {
	for i := space(b, 1); b[i] != '}'; {
		end := stringEnd(b, i)
		name := b[i:end]
		i = space(b, space(b, end)+1)
		end = valueEnd(b, i)
		f(name, b[i:end])
		if i = space(b, end); b[i] == ',' {
			i = space(b, i+1)
		}
	}
}

// items calls f for each item of an array.
func items(b []byte, f func(n int, value []byte)) {
	n := 0
	for i := space(b, 1); b[i] != ']'; n++ {
		end := valueEnd(b, i)
		f(n, b[i:end])
		if i = space(b, end); b[i] == ',' {
			i = space(b, i+1)
		}
	}
}

// unquote gives the text of a JSON string. Half of a surrogate pair is no text,
// and U+0000 can't be stored in PostgreSQL: both give ok false.
func unquote(b []byte) (s string, ok bool) {
	b = b[1 : len(b)-1]
	i := bytes.IndexByte(b, '\\')
	if i < 0 {
		return string(b), true
	}
	out := make([]byte, 0, len(b))
	hex := func(b []byte) rune {
		n, _ := strconv.ParseUint(string(b), 16, 32)
		return rune(n)
	}
	for ok = true; i >= 0; i = bytes.IndexByte(b, '\\') {
		out = append(out, b[:i]...)
		c := b[i+1]
		b = b[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex(b[:4])
			b = b[4:]
			if utf16.IsSurrogate(r) {
				if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
					return "", false
				}
				r = utf16.DecodeRune(r, hex(b[2:6]))
				b = b[6:]
				ok = ok && r != utf8.RuneError
			}
			ok = ok && r != 0
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
	return string(append(out, b...)), ok
}

func kindOf(b []byte) kind {
	switch b[0] {
	case '"':
		return kindString
	case '{':
		return kindObject
	case '[':
		return kindArray
	case 't', 'f':
		return kindBoolean
	case 'n':
		return ""
	}
	return kindNumber
}

// fits reports whether raw is written as s wants it.
func (s *shape) fits(raw []byte) bool {
	switch k := kindOf(raw); s.kind {
	case kindInteger:
		return k == kindNumber
	case kindMap:
		return k == kindObject
	default:
		return k == s.kind
	}
}

// exactly reports whether text is JSON that fits, with nothing around it.
func (s *shape) exactly(text []byte) bool {
	return json.Valid(text) && space(text, 0) == 0 && s.fits(text) && valueEnd(text, 0) == len(text)
}

var called = map[kind]string{
	kindString: "text", kindInteger: "a whole number", kindNumber: "a number", kindBoolean: "true or false",
	kindArray: "a list", kindObject: "an object", kindMap: "an object",
}

// target unwraps dst, marking that it was given.
func (s *shape) target(dst reflect.Value) reflect.Value {
	switch s.wrap {
	case pointer:
		dst.Set(reflect.New(s.typ))
		return dst.Elem()
	case opt:
		dst.FieldByName("Set").SetBool(true)
		return dst.FieldByName("Value")
	}
	return dst
}

// value decodes raw, one valid JSON value, into dst, which is zero.
func (d *decoder) value(s *shape, dst reflect.Value, raw []byte, at *place) {
	if raw[0] == 'n' && s.wrap != plain {
		if s.wrap == opt {
			dst.FieldByName("Set").SetBool(true)
			dst.FieldByName("Null").SetBool(true)
		}
		return
	}
	if s.kind == kindAny {
		if bytes.Contains(raw, []byte(`\u0000`)) {
			d.refuse(at, "invalid_text", "holds U+0000, which can't be stored")
			return
		}
		s.target(dst).SetBytes(bytes.Clone(raw))
		return
	}
	if d.lenient && !s.fits(raw) {
		raw = s.reread(raw)
	}
	if !s.fits(raw) {
		d.refuse(at, "wrong_type", "must be %s", called[s.kind])
		return
	}
	switch s.kind {
	case kindString:
		text, ok := unquote(raw)
		if !ok {
			d.refuse(at, "invalid_text", "holds U+0000 or half of a surrogate pair, which can't be stored")
			return
		}
		d.text(s, dst, text, at)
	case kindInteger, kindNumber:
		d.number(s, s.target(dst), string(raw), at)
	case kindBoolean:
		s.target(dst).SetBool(raw[0] == 't')
	case kindArray:
		d.array(s, s.target(dst), raw, at)
	case kindMap:
		d.dict(s, s.target(dst), raw, at)
	case kindObject:
		seen := make([]bool, len(s.fields.fields))
		root := s.target(dst)
		d.object(s.fields, raw, at, seen, nil, func(*field) reflect.Value { return root })
		d.finish(s.fields, at, seen, func(*field) reflect.Value { return root })
	}
}

// reread gives the value that a lenient face may have meant by raw: what a
// string holds, exactly; or the digits of an integer as text.
func (s *shape) reread(raw []byte) []byte {
	if kindOf(raw) == kindString {
		if text, ok := unquote(raw); ok && s.exactly([]byte(text)) {
			return []byte(text)
		}
	} else if s.kind == kindString && kindOf(raw) == kindNumber && !bytes.ContainsAny(raw, ".eE") {
		return slices.Concat([]byte{'"'}, raw, []byte{'"'})
	}
	return raw
}

// text sets dst to what a string says.
func (d *decoder) text(s *shape, dst reflect.Value, text string, at *place) {
	r := &s.rules
	if text == "" && s.wrap == opt && r.enum == nil && r.minLength == 0 {
		dst.FieldByName("Set").SetBool(true)
		dst.FieldByName("Null").SetBool(true)
		return
	}
	switch n := utf8.RuneCountInString(text); {
	case r.enum != nil && !slices.Contains(r.enum, text):
		d.refuse(at, "not_allowed", "must be one of %s", strings.Join(r.enum, ", "))
		return
	case n < r.minLength:
		if n == 0 {
			d.refuse(at, "too_short", "must not be empty")
		} else {
			d.refuse(at, "too_short", "must have at least %d characters", r.minLength)
		}
		return
	case r.maxLength != nil && n > *r.maxLength:
		d.refuse(at, "too_long", "must have at most %d characters, not %d", *r.maxLength, n)
		return
	}
	dst = s.target(dst)
	if !s.text {
		dst.SetString(text)
		return
	}
	// uuid takes several spellings; one thing has one name here
	if s.typ == uuidType && len(text) != 36 || dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)) != nil {
		switch s.format {
		case "uuid":
			d.refuse(at, "invalid_format", "must be a UUID")
		case "date-time":
			d.refuse(at, "invalid_format", "must be a time like 2026-11-30T09:00:00Z (RFC 3339)")
		default:
			d.refuse(at, "invalid_format", "is not written as it must be")
		}
		return
	}
	// in UTC, as it is answered: RFC 3339 has four digits for a year
	if s.typ == timeType {
		if year := dst.Interface().(time.Time).UTC().Year(); year < 1 || year > 9999 {
			d.refuse(at, "invalid_format", "must lie in the years 0001 to 9999 in UTC")
		}
	}
}

func (d *decoder) number(s *shape, dst reflect.Value, digits string, at *place) {
	f, err := strconv.ParseFloat(digits, 64)
	r := &s.rules
	switch {
	case r.minimum != nil && f < *r.minimum:
		d.refuse(at, "too_small", "must be at least %v", *r.minimum)
		return
	case r.maximum != nil && f > *r.maximum:
		d.refuse(at, "too_large", "must be at most %v", *r.maximum)
		return
	case s.kind == kindNumber && err != nil:
		d.refuse(at, "too_large", "is too large")
		return
	case s.kind == kindNumber:
		dst.SetFloat(f)
		return
	case f != math.Trunc(f):
		d.refuse(at, "wrong_type", "must be a whole number")
		return
	}
	var overflow bool
	if dst.CanInt() {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil && math.Abs(f) < 1<<53 { // 5.0 and 5e0 are whole numbers too
			n, err = int64(f), nil
		}
		if overflow = err != nil || dst.OverflowInt(n); !overflow {
			dst.SetInt(n)
		}
	} else {
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil && f >= 0 && f < 1<<53 {
			n, err = uint64(f), nil
		}
		if overflow = err != nil || dst.OverflowUint(n); !overflow {
			dst.SetUint(n)
		}
	}
	switch {
	case overflow && f < 0:
		d.refuse(at, "too_small", "is too small")
	case overflow:
		d.refuse(at, "too_large", "is too large")
	}
}

func (d *decoder) array(s *shape, dst reflect.Value, raw []byte, at *place) {
	list := reflect.MakeSlice(s.typ, 0, 4)
	over := false
	items(raw, func(n int, value []byte) {
		if over = s.rules.maxSize != nil && n >= *s.rules.maxSize; !over {
			item := reflect.New(s.typ.Elem()).Elem()
			d.value(s.elem, item, value, &place{above: at, index: n})
			list = reflect.Append(list, item)
		}
	})
	if over {
		d.refuse(at, "too_many", "must have at most %d items", *s.rules.maxSize)
	}
	dst.Set(list)
}

func (d *decoder) dict(s *shape, dst reflect.Value, raw []byte, at *place) {
	dict := reflect.MakeMap(s.typ)
	members(raw, func(name, value []byte) {
		key, ok := unquote(name)
		in := &place{above: at, name: key}
		k := reflect.ValueOf(key).Convert(s.typ.Key())
		switch {
		case !ok:
			d.refuse(at, "invalid_text", "has a name with U+0000 or half of a surrogate pair, which can't be stored")
		case dict.MapIndex(k).IsValid():
			d.refuse(in, "duplicate_field", "is given twice")
		default:
			item := reflect.New(s.typ.Elem()).Elem()
			d.value(s.elem, item, value, in)
			dict.SetMapIndex(k, item)
		}
	})
	if s.rules.maxSize != nil && dict.Len() > *s.rules.maxSize {
		d.refuse(at, "too_many", "must have at most %d members", *s.rules.maxSize)
	}
	dst.Set(dict)
}

// object decodes the members of raw. allowed may narrow the fields that count as
// known; seen is marked for each that was given.
func (d *decoder) object(t *table, raw []byte, at *place, seen []bool, allowed func(*field) bool, root func(*field) reflect.Value) {
	members(raw, func(name, value []byte) {
		key, _ := unquote(name)
		i, ok := t.byName[key]
		in := &place{above: at, name: key}
		switch {
		case !ok || allowed != nil && !allowed(t.fields[i]):
			if key == "" {
				in.name = `""`
			}
			d.refuse(in, "unknown_field", "is not a field here")
			return
		case seen[i]:
			d.refuse(in, "duplicate_field", "is given twice")
			return
		}
		f := t.fields[i]
		if d.lenient && value[0] == 'n' && f.shape.kind != kindAny {
			return
		}
		seen[i] = true
		d.value(f.shape, root(f).FieldByIndex(f.index), value, in)
	})
}

// finish puts defaults into the fields that were not given, or misses them.
func (d *decoder) finish(t *table, at *place, seen []bool, root func(*field) reflect.Value) {
	for i, f := range t.fields {
		switch {
		case seen[i]:
		case f.def != nil:
			d.value(f.shape, root(f).FieldByIndex(f.index), f.def, nil)
		case f.required:
			d.refuse(&place{above: at, name: f.name}, "missing_field", "is required")
		}
	}
}

// param decodes the values of one parameter of a path, query or header.
func (d *decoder) param(f *field, dst reflect.Value, values []string, at *place) {
	s := f.shape
	if s.kind == kindArray {
		dst = s.target(dst)
		if s.rules.maxSize != nil && len(values) > *s.rules.maxSize {
			d.refuse(at, "too_many", "must be given at most %d times", *s.rules.maxSize)
			return
		}
		dst.Set(reflect.MakeSlice(s.typ, len(values), len(values)))
		for i, v := range values {
			d.paramValue(s.elem, dst.Index(i), v, &place{above: at, index: i})
		}
		return
	}
	if len(values) > 1 {
		d.refuse(at, "duplicate_field", "is given twice")
		return
	}
	d.paramValue(s, dst, values[0], at)
}

func (d *decoder) paramValue(s *shape, dst reflect.Value, v string, at *place) {
	switch {
	case !utf8.ValidString(v) || strings.IndexByte(v, 0) >= 0:
		d.refuse(at, "invalid_text", "is not UTF-8 or holds U+0000")
	case s.kind == kindString:
		d.text(s, dst, v, at)
	case s.exactly([]byte(v)):
		d.value(s, dst, []byte(v), at)
	default:
		d.refuse(at, "wrong_type", "must be %s", called[s.kind])
	}
}

// roots makes an input to decode into, and finds the value that a field lies in.
func (o *Operation) roots() (in any, ctl *controls, root func(*field) reflect.Value) {
	in, ctl = o.newIn(), new(controls)
	iv, cv := reflect.ValueOf(in).Elem(), reflect.ValueOf(ctl).Elem()
	return in, ctl, func(f *field) reflect.Value {
		if f.control {
			return cv
		}
		return iv
	}
}

// decodeArgs decodes the arguments of a tool call.
func (o *Operation) decodeArgs(args []byte) (any, *controls, error) {
	in, ctl, root := o.roots()
	d := decoder{lenient: true}
	seen := make([]bool, len(o.input.fields))
	if args = bytes.TrimSpace(args); len(args) > 0 {
		if err := checkJSON(args); err != nil {
			return nil, nil, err
		}
		switch kindOf(args) {
		case kindObject:
			d.object(o.input, args, nil, seen, nil, root)
		case "":
		default:
			return nil, nil, fault.New(fault.Invalid, "wrong_type", "The arguments must be an object.")
		}
	}
	d.finish(o.input, nil, seen, root)
	for _, f := range d.faults {
		i, ok := o.input.byName[f.Name]
		if ok && o.input.fields[i].in == inPath && f.Code != "missing_field" && f.Code != "wrong_type" && f.Code != "duplicate_field" {
			return nil, nil, fault.NotFound("resource")
		}
	}
	return in, ctl, d.err()
}

func trimQuotes(s string) string {
	if len(s) > 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// decodeHTTP decodes what a request carries; body is all of its body, in JSON
// unless it was a form.
func (o *Operation) decodeHTTP(r *http.Request, body []byte, form *form) (any, *controls, error) {
	in, ctl, root := o.roots()
	var d decoder
	seen := make([]bool, len(o.input.fields))
	for i, f := range o.input.fields {
		var values []string
		switch f.in {
		case inPath:
			values = []string{r.PathValue(f.param)}
		case inHeader:
			values = r.Header.Values(f.param)
			if f.control && len(values) == 1 {
				// the Idempotency-Key draft says a structured string, in quotes; many send it bare
				values = []string{trimQuotes(values[0])}
			}
		}
		if len(values) > 0 {
			seen[i] = true
			d.param(f, root(f).FieldByIndex(f.index), values, &place{name: f.param})
		}
		if f.in == inPath && d.faults != nil {
			return nil, nil, fault.NotFound("resource")
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "malformed_query", "The query is not well formed.")
	}
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		at := &place{name: name}
		i, ok := o.input.byQuery[name]
		if !ok && form != nil {
			i, ok = o.inForm(name)
		}
		if ok {
			f := o.input.fields[i]
			seen[i] = true
			d.param(f, root(f).FieldByIndex(f.index), query[name], at)
		} else {
			if name == "" {
				at.name = `""`
			}
			d.refuse(at, "unknown_parameter", "is not a parameter here")
		}
	}
	if form != nil {
		for _, name := range form.names {
			at := &place{name: name}
			switch i, ok := o.inForm(name); {
			case !ok:
				d.refuse(at, "unknown_field", "is not a field here")
			case seen[i]:
				d.refuse(at, "duplicate_field", "is given twice")
			default:
				f := o.input.fields[i]
				seen[i] = true
				d.param(f, root(f).FieldByIndex(f.index), form.values[name], at)
			}
		}
	} else if body = bytes.TrimSpace(body); len(body) > 0 {
		if err := checkJSON(body); err != nil {
			return nil, nil, err
		}
		if kindOf(body) != kindObject {
			return nil, nil, fault.New(fault.Invalid, "wrong_type", "The body must be an object.")
		}
		d.object(o.input, body, nil, seen, func(f *field) bool { return f.in == inBody || f.control }, root)
	}
	d.finish(o.input, nil, seen, root)
	return in, ctl, d.err()
}
