package op

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"standmeet/shared/fault"
)

// Upload is a file that came with a request.
type Upload struct {
	// Name is as it was sent, folders included; empty for a body that is one file.
	Name        string
	ContentType string
	Content     []byte
}

// form is a body that is no JSON.
type form struct {
	files  []Upload
	names  []string
	values map[string][]string
}

// maxParts bounds the parts of a multipart body.
const maxParts = 50_000

// readForm reads a body that says it is a file or a form; of any other it makes
// sure that it says it is JSON, and is nil.
func (o *Operation) readForm(h http.Header, body []byte) (*form, error) {
	if len(body) == 0 {
		return nil, nil
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	multi := len(o.spec.Uploads) > 0 && media == "multipart/form-data"
	if err != nil || !multi && !slices.Contains(o.spec.Uploads, media) {
		return nil, o.jsonContent(h)
	}
	if err := plainEncoding(h); err != nil {
		return nil, err
	}
	f := &form{values: map[string][]string{}}
	if !multi {
		f.files = []Upload{{ContentType: media, Content: body}}
		return f, nil
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for n := 0; ; n++ {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(part)
		}
		switch {
		case err != nil:
			return nil, &fault.Fault{Kind: fault.Invalid, Code: "malformed_form", Detail: "The multipart/form-data is not well formed, or ends early.", Err: err}
		case n == maxParts:
			return nil, fault.New(fault.Invalid, "too_many", fmt.Sprintf("The form may have %d parts at most.", maxParts))
		}
		// Part.FileName would drop the folders
		_, names, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if file, ok := names["filename"]; ok && err == nil {
			f.files = append(f.files, Upload{Name: file, ContentType: cmp.Or(part.Header.Get("Content-Type"), "application/octet-stream"), Content: content})
			continue
		}
		name := part.FormName()
		if _, again := f.values[name]; !again {
			f.names = append(f.names, name)
		}
		f.values[name] = append(f.values[name], string(content))
	}
}

// inForm finds the field of a body by its name.
func (o *Operation) inForm(name string) (int, bool) {
	i, ok := o.input.byName[name]
	return i, ok && (o.input.fields[i].in == inBody || o.input.fields[i].control)
}

// jsonContent refuses a body that doesn't say it is JSON as it stands.
func (o *Operation) jsonContent(h http.Header) error {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, ok := params["charset"]
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") || ok && !strings.EqualFold(charset, "utf-8") {
		detail := "The body must be application/json in UTF-8, and its Content-Type must say so."
		if len(o.spec.Uploads) > 0 {
			detail = "The body must be application/json in UTF-8, multipart/form-data or " + strings.Join(o.spec.Uploads, " or ") + ", and its Content-Type must say so."
		}
		return fault.New(fault.UnsupportedMedia, "unsupported_media_type", detail)
	}
	return plainEncoding(h)
}

func plainEncoding(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return fault.New(fault.UnsupportedMedia, "unsupported_content_encoding", "The body must be sent without a Content-Encoding.")
	}
	return nil
}
