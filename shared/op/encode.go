package op

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"
)

// encode gives the JSON of a handler's answer: lists and maps are never null,
// times are in UTC, and <, > and & are left as they are.
func (s *shape) encode(out any) ([]byte, error) {
	v := reflect.ValueOf(out)
	if s.fix {
		v, _ = s.fixed(v)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v.Interface()); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// fixed gives v as it is to be encoded. It copies what it changes, since a
// handler may answer with values that others read, and says whether it did.
func (s *shape) fixed(v reflect.Value) (reflect.Value, bool) {
	if !s.fix {
		return v, false
	}
	switch s.wrap {
	case pointer:
		if v.IsNil() {
			return v, false
		}
		inner := *s
		inner.wrap = plain
		to, changed := inner.fixed(v.Elem())
		if !changed {
			return v, false
		}
		p := reflect.New(s.typ)
		p.Elem().Set(to)
		return p, true
	case opt:
		inner := *s
		inner.wrap = plain
		to, changed := inner.fixed(v.FieldByName("Value"))
		if !changed {
			return v, false
		}
		v = clone(v)
		v.FieldByName("Value").Set(to)
		return v, true
	}
	switch s.kind {
	case kindString:
		if t := v.Interface().(time.Time); t.Location() != time.UTC {
			return reflect.ValueOf(t.UTC()), true
		}
	case kindArray:
		if v.IsNil() {
			return reflect.MakeSlice(s.typ, 0, 0), true
		}
		copied := false
		for i := range v.Len() {
			to, changed := s.elem.fixed(v.Index(i))
			if changed && !copied {
				list := reflect.MakeSlice(s.typ, v.Len(), v.Len())
				reflect.Copy(list, v)
				v, copied = list, true
			}
			if changed {
				v.Index(i).Set(to)
			}
		}
		return v, copied
	case kindMap:
		if v.IsNil() {
			return reflect.MakeMap(s.typ), true
		}
		if !s.elem.fix {
			return v, false
		}
		to := reflect.MakeMapWithSize(s.typ, v.Len())
		for it := v.MapRange(); it.Next(); {
			item, _ := s.elem.fixed(it.Value())
			to.SetMapIndex(it.Key(), item)
		}
		return to, true
	case kindObject:
		copied := false
		for _, f := range s.fields.fields {
			at := v.FieldByIndex(f.index)
			if !f.shape.fix || f.omit && at.IsZero() {
				continue
			}
			if to, changed := f.shape.fixed(at); changed {
				if !copied {
					v, copied = clone(v), true
				}
				v.FieldByIndex(f.index).Set(to)
			}
		}
		return v, copied
	}
	return v, false
}

// clone gives a settable copy.
func clone(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}
