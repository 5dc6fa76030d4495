package op

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"standmeet/shared/auth"
)

type uploadIn struct {
	Note  string `json:"note,omitempty"`
	Force bool   `json:"force,omitempty"`
	Lang  string `json:"lang,omitempty" query:"lang"`
}

type uploadOut struct {
	Seen string `json:"seen"`
}

// What a form, a file and JSON carry reaches the handler in the same fields.
func TestUploads(t *testing.T) {
	t.Parallel()
	o := New(Spec{Name: "box.put", Method: "POST", Path: "/box", Access: Public, Summary: "Put.", Uploads: []string{"application/zip"}, MaxBody: 10_000},
		func(ctx context.Context, _ auth.Caller, in uploadIn) (uploadOut, error) {
			seen := fmt.Sprintf("note=%s force=%v lang=%s", in.Note, in.Force, in.Lang)
			for _, f := range CallFrom(ctx).Files {
				seen += fmt.Sprintf(" [%s|%s|%q]", f.Name, f.ContentType, f.Content)
			}
			return uploadOut{seen}, nil
		})
	h := NewCatalog(o).Handler(&Server{})
	multi := func(parts ...string) string {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString("--x\r\n" + p + "\r\n")
		}
		return b.String() + "--x--\r\n"
	}
	const form = "multipart/form-data; boundary=x"
	field := func(name, value string) string {
		return "Content-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value
	}
	file := "Content-Disposition: form-data; name=\"f\"; filename=\"wiki/ä b.md\"\r\nContent-Type: text/markdown\r\n\r\n\x00\xff"
	for name, c := range map[string]struct{ query, contentType, body, want string }{
		"json":            {"", "application/json", `{"note":"n","force":true}`, `note=n force=true lang=`},
		"nothing":         {"", "", "", `note= force=false lang=`},
		"file":            {"?force=true&note=n&lang=de", "application/zip", "PK\x00", `note=n force=true lang=de [|application/zip|\"PK\\x00\"]`},
		"form":            {"?lang=de", form, multi(field("note", "n"), file, field("force", "true"), file), `note=n force=true lang=de [wiki/ä b.md|text/markdown|\"\\x00\\xff\"] [wiki/ä b.md|text/markdown|\"\\x00\\xff\"]`},
		"empty form":      {"", form, multi(), `note= force=false lang=`},
		"unknown field":   {"", form, multi(field("other", "1")), "unknown_field"},
		"twice":           {"", form, multi(field("note", "1"), field("note", "2")), "duplicate_field"},
		"in both":         {"?note=1", form, multi(field("note", "2")), "duplicate_field"},
		"wrong type":      {"", form, multi(field("force", "yes")), "wrong_type"},
		"cut":             {"", form, multi(file)[:80], "malformed_form"},
		"no boundary":     {"", "multipart/form-data", multi(file), "malformed_form"},
		"other type":      {"", "text/plain", "x", "unsupported_media_type"},
		"in JSON's query": {"?note=1", "application/json", "{}", "unknown_parameter"},
		"too large":       {"", "application/zip", strings.Repeat("x", 10_001), "body_too_large"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/box"+c.query, bytes.NewReader([]byte(c.body)))
		if c.contentType != "" {
			r.Header.Set("Content-Type", c.contentType)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s; want %s", name, w.Code, w.Body, c.want)
		}
	}
	plain := NewCatalog(New(Spec{Name: "box.plain", Method: "POST", Path: "/box", Access: Public, Summary: "Put."},
		func(context.Context, auth.Caller, uploadIn) (uploadOut, error) { return uploadOut{}, nil })).Handler(&Server{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/box", strings.NewReader(multi(file)))
	r.Header.Set("Content-Type", form)
	w := httptest.NewRecorder()
	if plain.ServeHTTP(w, r); w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("an operation without uploads took a form: %d", w.Code)
	}
}
