package op

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Opt is a field of an update: absent keeps what is stored, null clears it, and
// a value replaces it. Its json tag must say omitzero.
//
// An empty text clears as null does, unless the field has an enum or a minLength.
// In MCP arguments null means absent, because clients send it for whatever they
// leave out.
type Opt[T any] struct {
	// Set: the field was given, as null or as a value.
	Set bool
	// Null: it was cleared. Value is zero then.
	Null  bool
	Value T
}

// Some is an Opt that holds v.
func Some[T any](v T) Opt[T] { return Opt[T]{Set: true, Value: v} }

// Or gives what the field will be, when it was old: old itself if absent, the
// zero T if cleared.
func (o Opt[T]) Or(old T) T {
	if o.Set {
		return o.Value
	}
	return old
}

// MarshalJSON gives null unless there is a value.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.Set || o.Null {
		return []byte("null"), nil
	}
	return json.Marshal(o.Value)
}

// UnmarshalJSON sets the field, also from null.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	*o = Opt[T]{Set: true}
	if bytes.Equal(b, []byte("null")) {
		o.Null = true
		return nil
	}
	return json.Unmarshal(b, &o.Value)
}

func (Opt[T]) optional() {}

var optType = reflect.TypeFor[interface{ optional() }]()
