// Package blob keeps files too large for rows: attachments of vaults, uploads,
// built sites. They lie in a bucket of S3 or of what speaks like it, or in a
// directory.
//
// A store knows no owners: whoever makes up a key puts the owner into it, and
// asks for no key that came from outside.
package blob

import (
	"context"
	"io"
	"mime"
	"regexp"
	"strings"
	"time"

	"standmeet/shared/config"
	"standmeet/shared/fault"
	"standmeet/shared/secret"
)

// Meta is what is kept of a blob beside its bytes.
type Meta struct {
	// ContentType is a media type; empty is application/octet-stream.
	ContentType string
}

// Object is a blob that is being read. Close its Body.
type Object struct {
	Body        io.ReadCloser
	Size        int64
	ContentType string
	// ETag, with its quotes, is another one for other bytes.
	ETag string
}

// Upload is what somebody needs who is to bring a blob: a PUT of exactly the
// agreed size to URL with these headers.
type Upload struct {
	URL       string
	Headers   map[string]string
	ExpiresAt time.Time
}

// Store keeps blobs by keys: paths of ASCII letters, digits, '.', '_' and '-'.
// A store that can't be reached is fault "blobs_unavailable" (503).
type Store interface {
	// Put stores content whole or not at all, in place of what has the key.
	Put(ctx context.Context, key string, content []byte, m Meta) error
	// Get is fault "not_found" for a key that nothing has.
	Get(ctx context.Context, key string) (Object, error)
	// Delete removes blobs; absent keys are fine.
	Delete(ctx context.Context, keys ...string) error
	// PresignPut lets whoever has the answer put size bytes under key, once or more
	// often, while it is valid.
	PresignPut(ctx context.Context, key string, size int64, valid time.Duration) (Upload, error)
	// PresignGet is an address by which anybody may read what key has then, while it
	// is valid. A browser saves it as download; empty shows it.
	PresignGet(ctx context.Context, key, download string, valid time.Duration) (string, error)
}

// Open is the store that c names: S3 when it has an endpoint of it or is for
// production, else the directory dir. keys and publicURL are what a directory's
// uploads are signed with, and where the gateway takes them.
func Open(ctx context.Context, c config.Config, dir string, keys secret.Keys, publicURL string) (Store, error) {
	if c.S3Endpoint == nil && !c.Production {
		return NewDir(dir, keys, publicURL), nil
	}
	o := S3Options{Bucket: c.S3Bucket, Region: c.S3Region}
	if c.S3Endpoint != nil {
		o.Endpoint = c.S3Endpoint.String()
	}
	return NewS3(ctx, o)
}

const octets = "application/octet-stream"

var keySyntax = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// valid reports whether key is one: no part of it is only dots.
func valid(key string) bool {
	if len(key) > 512 || !keySyntax.MatchString(key) {
		return false
	}
	for part := range strings.SplitSeq(key, "/") {
		if strings.Trim(part, ".") == "" {
			return false
		}
	}
	return true
}

func attachment(name string) string {
	return mime.FormatMediaType("attachment", map[string]string{"filename": name})
}

func notFound() error { return fault.NotFound("blob") }

func unavailable(err error) error {
	return &fault.Fault{Kind: fault.Unavailable, Code: "blobs_unavailable", RetryAfter: time.Second, Err: err,
		Detail: "The store of files can't be reached right now. Try again shortly."}
}
