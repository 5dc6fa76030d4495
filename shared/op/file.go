package op

import (
	"bytes"
	"mime"
	"net/http"
	"time"
)

// File is an answer that is no JSON. Its media type is Spec.Produces. Only HTTP
// has it.
type File struct {
	Body []byte
	// ETag, with its quotes, lets a client ask whether it still holds the file (RFC
	// 9110, section 13.1); empty: it can't.
	ETag string
	// Modified may be zero.
	Modified time.Time
	// Download is the name that a browser saves it under; empty shows it.
	Download string
	// CacheControl is "private, no-cache" when empty.
	CacheControl string
	// ContentType wins over Spec.Produces; may be empty.
	ContentType string
	// Redirect is an address that has the file, for a while; then there is no Body.
	Redirect string
}

func (f File) serve(w http.ResponseWriter, r *http.Request, contentType string) {
	h := w.Header()
	if f.Redirect != "" {
		h.Set("Cache-Control", "no-store")
		http.Redirect(w, r, f.Redirect, http.StatusTemporaryRedirect)
		return
	}
	if f.ContentType != "" {
		contentType = f.ContentType
	}
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if f.CacheControl == "" {
		f.CacheControl = "private, no-cache"
	}
	h.Set("Cache-Control", f.CacheControl)
	if f.ETag != "" {
		h.Set("ETag", f.ETag)
	}
	if f.Download != "" {
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Download}))
	}
	http.ServeContent(w, r, "", f.Modified, bytes.NewReader(f.Body))
}
