// Package obsidian holds the operations on vaults of Obsidian: their import, as
// one committed result, their export, and the attachments that notes show.
package obsidian

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/blob"
	"standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/vault"
)

// Deps is what these operations need.
type Deps struct {
	DB    *pg.DB
	Blobs blob.Store
}

const (
	// maxBody is what an API Gateway takes of a request.
	maxBody = 10 << 20
	// maxAnswer is what a Lambda function may answer with, less what base64 and JSON
	// add. A larger file is read from the store of blobs, for addressLife.
	maxAnswer   = 4 << 20
	addressLife = 10 * time.Minute
)

// uploadBlob is the key of what an owner uploaded.
func uploadBlob(owner uuid.UUID, key string) string {
	return "uploads/" + owner.String() + "/" + key
}

// serve answers with an attachment, which never changes under its hash.
func (d Deps) serve(ctx context.Context, owner uuid.UUID, a vault.Attachment, cache string) (f op.File, err error) {
	key := vault.BlobKey(owner, a.Hash)
	f = op.File{ETag: fmt.Sprintf(`"%x"`, a.Hash), ContentType: cmp.Or(vault.ContentType(a.Path), octets), CacheControl: cache}
	if a.Size > maxAnswer {
		f.Redirect, err = d.Blobs.PresignGet(ctx, key, "", addressLife)
		return f, err
	}
	f.Body, err = d.read(ctx, key)
	return f, err
}

const octets = "application/octet-stream"

func (d Deps) read(ctx context.Context, key string) ([]byte, error) {
	o, err := d.Blobs.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer o.Body.Close()
	b := bytes.NewBuffer(make([]byte, 0, max(o.Size, 0)+bytes.MinRead))
	if _, err := io.Copy(b, o.Body); err != nil {
		return nil, &fault.Fault{Kind: fault.Unavailable, Code: "blobs_unavailable", RetryAfter: time.Second, Err: err, Detail: "The file could not be read to its end. Try again shortly."}
	}
	return b.Bytes(), nil
}

// assetPath is a path as a part of an address.
func assetPath(p string) string {
	parts := strings.Split(p, "/")
	for i, s := range parts {
		parts[i] = url.PathEscape(s)
	}
	return strings.Join(parts, "/")
}

// AssetURL is where the owner reads an attachment.
func AssetURL(p string) string { return "/v1/obsidian/assets/" + assetPath(p) }

// PublicAssetURL is where visitors read an attachment that a note embeds. Of one
// that it only links to they are told nothing.
func PublicAssetURL(handle string, n corpus.Note) func(corpus.Link, string) string {
	return func(l corpus.Link, p string) string {
		if !l.Embed {
			return ""
		}
		return "/v1/public/" + url.PathEscape(handle) + "/assets/" + assetPath(p) + "?" + url.Values{"note": {n.Path}, "genre": {string(n.Genre)}}.Encode()
	}
}
