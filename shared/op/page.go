package op

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"standmeet/shared/fault"
)

// Page is the answer of every list.
type Page[T any] struct {
	Items []T `json:"items"`
	// NextCursor is empty on the last page.
	NextCursor string `json:"next_cursor,omitempty" jsonschema:"Pass it as cursor to get the next page; absent on the last page."`
	Total      int    `json:"total" jsonschema:"How many there are on all pages."`
}

// Paging is embedded by the input of every list.
type Paging struct {
	Limit  int    `json:"limit,omitempty" default:"50" minimum:"1" maximum:"200" jsonschema:"How many items to answer at most."`
	Cursor string `json:"cursor,omitempty" maxLength:"1024" jsonschema:"next_cursor of the page before; leave it out for the first page."`
}

// EncodeCursor makes an opaque cursor of a position, a struct of plain values.
func EncodeCursor(position any) string {
	b, err := json.Marshal(position)
	if err != nil {
		panic("op: cursor: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeCursor reads a cursor into position, a pointer to the type it was made
// of. Anything that EncodeCursor would not have made of that type is fault code
// "bad_cursor". The empty cursor leaves position as it is.
func DecodeCursor(cursor string, position any) error {
	if cursor == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		err = d.Decode(position)
	}
	// PostgreSQL's text can't hold U+0000
	if err != nil || bytes.Contains(raw, []byte(`\u0000`)) || EncodeCursor(position) != cursor {
		const detail = "The cursor is not one that this list gave out. Start again without it."
		return &fault.Fault{Kind: fault.Invalid, Code: "bad_cursor", Detail: detail, Err: err,
			Fields: []fault.Field{{Name: "cursor", Code: "bad_cursor", Detail: detail}}}
	}
	return nil
}
