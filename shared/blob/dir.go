package blob

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/secret"
)

// Dir keeps each blob as a file below a directory: a line of JSON about it, then
// its bytes, so that both change in one step.
type Dir struct {
	path      string
	keys      secret.Keys
	publicURL string
}

// NewDir makes the directory when something is first put there. keys sign
// uploads, which arrive at Uploads below publicURL.
func NewDir(path string, keys secret.Keys, publicURL string) *Dir {
	return &Dir{path, keys, publicURL}
}

// head is the first line of a file.
type head struct {
	ContentType string `json:"content_type"`
	ETag        string `json:"etag"`
}

// file adds an ending that no directory has: a key may be the beginning of
// another.
func (d *Dir) file(key string) (string, error) {
	if !valid(key) {
		return "", fmt.Errorf("blob: %q is no key", key)
	}
	return filepath.Join(d.path, filepath.FromSlash(key)+".blob"), nil
}

// Put is as in Store.
func (d *Dir) Put(ctx context.Context, key string, content []byte, m Meta) error {
	sum := md5.Sum(content) // what S3 makes an ETag of
	return d.write(ctx, key, m, hex.EncodeToString(sum[:]), bytes.NewReader(content))
}

func (d *Dir) write(ctx context.Context, key string, m Meta, tag string, content io.Reader) (err error) {
	name, err := d.file(key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return unavailable(err)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".*.tmp")
	if err != nil {
		return unavailable(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	first, err := json.Marshal(head{cmp.Or(m.ContentType, octets), `"` + tag + `"`})
	if err != nil {
		return err
	}
	if _, err := f.Write(append(first, '\n')); err != nil {
		return unavailable(err)
	}
	if _, err := io.Copy(f, content); err != nil {
		var disk *fs.PathError
		if errors.As(err, &disk) {
			return unavailable(err)
		}
		return &fault.Fault{Kind: fault.Invalid, Code: "incomplete_body", Detail: "The upload ended early.", Err: err}
	}
	if err := f.Close(); err != nil {
		return unavailable(err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return unavailable(err)
	}
	return nil
}

// Get is as in Store.
func (d *Dir) Get(_ context.Context, key string) (o Object, err error) {
	name, err := d.file(key)
	if err != nil {
		return o, err
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return o, notFound()
	}
	if err != nil {
		return o, unavailable(err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return o, unavailable(err)
	}
	r := bufio.NewReader(f)
	line, err := r.ReadBytes('\n')
	var h head
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err != nil {
		return o, fmt.Errorf("blob: %s is damaged: %w", key, err)
	}
	return Object{
		Body: struct {
			io.Reader
			io.Closer
		}{r, f},
		Size: info.Size() - int64(len(line)), ContentType: h.ContentType, ETag: h.ETag,
	}, nil
}

// Delete is as in Store.
func (d *Dir) Delete(_ context.Context, keys ...string) error {
	for _, key := range keys {
		name, err := d.file(key)
		if err != nil {
			return err
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unavailable(err)
		}
	}
	return nil
}

// uploads is where the gateway takes them.
const uploads = "/uploads/"

func (d *Dir) signed(key string, size, expires int64) string {
	return fmt.Sprintf("PUT %s %d %d", key, size, expires)
}

const uploadPurpose = "blob upload"

// PresignPut is as in Store.
func (d *Dir) PresignPut(_ context.Context, key string, size int64, life time.Duration) (u Upload, err error) {
	if _, err := d.file(key); err != nil {
		return u, err
	}
	if d.keys.Zero() {
		return u, errors.New("blob: there is no key to sign uploads with")
	}
	u.ExpiresAt = time.Now().Add(life).Truncate(time.Second)
	expires := u.ExpiresAt.Unix()
	q := url.Values{
		"size": {strconv.FormatInt(size, 10)}, "expires": {strconv.FormatInt(expires, 10)},
		"signature": {d.keys.Token(uploadPurpose, d.signed(key, size, expires))},
	}
	u.URL = d.publicURL + uploads + key + "?" + q.Encode()
	u.Headers = map[string]string{"Content-Type": octets}
	return u, nil
}

// Uploads takes what PresignPut allowed: PUT /uploads/{key}. It stands for S3,
// so the gateway serves it itself and hands it to no function.
func (d *Dir) Uploads() (pattern string, h http.Handler) {
	return "PUT " + uploads, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.upload(w, r); err != nil {
			op.WriteProblem(w, op.RequestID(r), err)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
}

func (d *Dir) upload(w http.ResponseWriter, r *http.Request) error {
	key, q := strings.TrimPrefix(r.URL.Path, uploads), r.URL.Query()
	size, badSize := strconv.ParseInt(q.Get("size"), 10, 64)
	expires, badTime := strconv.ParseInt(q.Get("expires"), 10, 64)
	_, ok := d.keys.FindToken(uploadPurpose, d.signed(key, size, expires), secret.Hash(q.Get("signature")))
	switch {
	case badSize != nil || badTime != nil || !ok:
		return fault.New(fault.Forbidden, "upload_refused", "This address takes no upload: it was changed, or never given out.")
	case time.Now().Unix() > expires:
		return fault.New(fault.Forbidden, "upload_expired", "This address took uploads until a while ago. Ask for another one.")
	case r.ContentLength != size:
		return fault.New(fault.Invalid, "wrong_size", fmt.Sprintf("The upload must have %d bytes, as was asked for.", size))
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(expires, 0)) // none is set where it can't be
	return d.write(r.Context(), key, Meta{r.Header.Get("Content-Type")}, strconv.FormatInt(time.Now().UnixNano(), 36), r.Body)
}
