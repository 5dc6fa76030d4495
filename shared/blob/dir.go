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
// addresses, which Gate serves below publicURL.
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

// gate is where the gateway takes and gives blobs.
const gate = "/blobs/"

const (
	putPurpose = "blob upload"
	getPurpose = "blob download"
)

// sign adds to q, what a request may ask for, until when and by whose leave.
func (d *Dir) sign(purpose, key string, q url.Values, life time.Duration) (address string, until time.Time, err error) {
	if _, err := d.file(key); err != nil {
		return "", until, err
	}
	if d.keys.Zero() {
		return "", until, errors.New("blob: there is no key to sign addresses with")
	}
	until = time.Now().Add(life).Truncate(time.Second)
	q.Set("expires", strconv.FormatInt(until.Unix(), 10))
	signed := q.Encode()
	return d.publicURL + gate + key + "?" + signed + "&signature=" + d.keys.Token(purpose, key+"?"+signed), until, nil
}

// signed reads what sign wrote.
func (d *Dir) signed(purpose string, r *http.Request) (key string, q url.Values, err error) {
	key, q = strings.TrimPrefix(r.URL.Path, gate), r.URL.Query()
	signature := q.Get("signature")
	q.Del("signature")
	_, ok := d.keys.FindToken(purpose, key+"?"+q.Encode(), secret.Hash(signature))
	expires, bad := strconv.ParseInt(q.Get("expires"), 10, 64)
	switch {
	case !ok || bad != nil:
		err = fault.New(fault.Forbidden, "address_refused", "This address was changed, or never given out.")
	case time.Now().Unix() >= expires:
		err = fault.New(fault.Forbidden, "address_expired", "This address worked until a while ago. Ask for another one.")
	}
	return key, q, err
}

// PresignPut is as in Store.
func (d *Dir) PresignPut(_ context.Context, key string, size int64, life time.Duration) (u Upload, err error) {
	u.Headers = map[string]string{"Content-Type": octets}
	u.URL, u.ExpiresAt, err = d.sign(putPurpose, key, url.Values{"size": {strconv.FormatInt(size, 10)}}, life)
	return u, err
}

// PresignGet is as in Store.
func (d *Dir) PresignGet(_ context.Context, key, download string, life time.Duration) (address string, err error) {
	address, _, err = d.sign(getPurpose, key, url.Values{"download": {download}}, life)
	return address, err
}

// Gate serves what PresignPut and PresignGet gave out. It stands for S3, so the
// gateway serves it itself and hands it to no function.
func (d *Dir) Gate() (pattern string, h http.Handler) {
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{"PUT " + gate: d.upload, "GET " + gate: d.download} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				op.WriteProblem(w, op.RequestID(r), err)
			}
		})
	}
	return gate, mux
}

func (d *Dir) upload(w http.ResponseWriter, r *http.Request) error {
	key, q, err := d.signed(putPurpose, r)
	if err != nil {
		return err
	}
	if q.Get("size") != strconv.FormatInt(r.ContentLength, 10) {
		return fault.New(fault.Invalid, "wrong_size", "The upload must have "+q.Get("size")+" bytes, as was asked for.")
	}
	return d.write(r.Context(), key, Meta{r.Header.Get("Content-Type")}, strconv.FormatInt(time.Now().UnixNano(), 36), r.Body)
}

func (d *Dir) download(w http.ResponseWriter, r *http.Request) error {
	key, q, err := d.signed(getPurpose, r)
	if err != nil {
		return err
	}
	o, err := d.Get(r.Context(), key)
	if err != nil {
		return err
	}
	defer o.Body.Close()
	h := w.Header()
	h.Set("Content-Type", o.ContentType)
	h.Set("Content-Length", strconv.FormatInt(o.Size, 10))
	h.Set("ETag", o.ETag)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if name := q.Get("download"); name != "" {
		h.Set("Content-Disposition", attachment(name))
	}
	_, _ = io.Copy(w, o.Body) // the client is gone if this fails
	return nil
}
