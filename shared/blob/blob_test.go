package blob_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"standmeet/shared/blob"
	"standmeet/shared/fault"
	"standmeet/shared/secret"
)

func keys(t *testing.T) secret.Keys {
	t.Helper()
	k, err := secret.ParseKeys(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), secret.MinKey)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func inDir(t *testing.T) (*blob.Dir, string) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "blobs")
	d := blob.NewDir(path, keys(t), server.URL)
	mux.Handle(d.Gate())
	return d, path
}

func inS3(t *testing.T) *blob.S3 {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("standmeet"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	s, err := blob.NewS3(t.Context(), blob.S3Options{Bucket: "standmeet", Endpoint: server.URL, Credentials: credentials.NewStaticCredentialsProvider("key", "secret", "")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func each(t *testing.T, f func(t *testing.T, s blob.Store)) {
	t.Run("dir", func(t *testing.T) {
		t.Parallel()
		d, _ := inDir(t)
		f(t, d)
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		f(t, inS3(t))
	})
}

func read(t *testing.T, s blob.Store, key string) (content string, o blob.Object) {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	raw, err := io.ReadAll(o.Body)
	if err != nil || int64(len(raw)) != o.Size {
		t.Fatalf("%s: %d bytes of %d, %v", key, len(raw), o.Size, err)
	}
	return string(raw), o
}

func missing(t *testing.T, s blob.Store, key string) {
	t.Helper()
	_, err := s.Get(t.Context(), key)
	if f := fault.From(err); f == nil || f.Code != "not_found" {
		t.Errorf("%s: %v; want not_found", key, err)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s blob.Store) {
		ctx := t.Context()
		missing(t, s, "a/b")
		for key, content := range map[string]string{"a/b": "one\ntwo", "a": "", "a/b/c.d_e-f": strings.Repeat("\x00\xff\n", 1<<19)} {
			if err := s.Put(ctx, key, []byte(content), blob.Meta{}); err != nil {
				t.Fatal(err)
			}
			got, o := read(t, s, key)
			if got != content || o.ContentType != "application/octet-stream" || len(o.ETag) < 3 || o.ETag[0] != '"' {
				t.Errorf("%s: %d bytes, %q, %q", key, len(got), o.ContentType, o.ETag)
			}
		}
		_, before := read(t, s, "a/b")
		if err := s.Put(ctx, "a/b", []byte("three"), blob.Meta{ContentType: "text/plain"}); err != nil {
			t.Fatal(err)
		}
		if got, o := read(t, s, "a/b"); got != "three" || o.ContentType != "text/plain" || o.ETag == before.ETag {
			t.Errorf("replaced: %q, %+v", got, o)
		}
		if err := s.Delete(ctx, "a/b", "absent", "a"); err != nil {
			t.Fatal(err)
		}
		missing(t, s, "a/b")
		missing(t, s, "a")
		for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "...", "a b", "ä", strings.Repeat("a", 513)} {
			if err := s.Put(ctx, key, nil, blob.Meta{}); err == nil {
				t.Errorf("%q is a key", key)
			}
		}
	})
}

// A reader sees one of the blobs that had the key, whole.
func TestReplacing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s blob.Store) {
		var writers sync.WaitGroup
		put := func(n int) error {
			letter := string(rune('a' + n))
			return s.Put(t.Context(), "k", bytes.Repeat([]byte(letter), 10_000*(n+1)), blob.Meta{ContentType: "x/" + letter})
		}
		if err := put(0); err != nil {
			t.Fatal(err)
		}
		for n := range 4 {
			writers.Go(func() {
				for range 10 {
					if err := put(n); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 20 {
			got, o := read(t, s, "k")
			if want := "x/" + got[:1]; o.ContentType != want || strings.Trim(got, got[:1]) != "" || len(got) != 10_000*int(got[0]-'a'+1) {
				t.Errorf("a mix: %d bytes beginning with %q, %s", len(got), got[:1], o.ContentType)
			}
		}
		writers.Wait()
	})
}

func upload(t *testing.T, u blob.Upload, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, u.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range u.Headers {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

func TestUpload(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s blob.Store) {
		u, err := s.PresignPut(t.Context(), "uploads/x", 5, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Until(u.ExpiresAt); d > time.Minute || d < 0 {
			t.Errorf("it expires in %v", d)
		}
		if code := upload(t, u, "12345"); code != http.StatusOK {
			t.Fatalf("status %d", code)
		}
		if got, _ := read(t, s, "uploads/x"); got != "12345" {
			t.Errorf("%q arrived", got)
		}
		address, err := s.PresignGet(t.Context(), "uploads/x", "x ü.txt", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got, err := io.ReadAll(res.Body); err != nil || string(got) != "12345" || !strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment; filename") {
			t.Errorf("%s: %d %q %v", address, res.StatusCode, got, res.Header)
		}
	})
}

// Of S3 the server checks the signature; that it covers the length is ours.
func TestUploadsOfS3SignTheLength(t *testing.T) {
	t.Parallel()
	u, err := inS3(t).PresignPut(t.Context(), "x", 5, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	if signed := parsed.Query().Get("X-Amz-SignedHeaders"); !strings.Contains(signed, "content-length") || parsed.Query().Get("X-Amz-Expires") != "60" {
		t.Errorf("%s", u.URL)
	}
}

func TestUploadRefused(t *testing.T) {
	t.Parallel()
	d, path := inDir(t)
	u, err := d.PresignPut(t.Context(), "up/x", 5, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	late, err := d.PresignPut(t.Context(), "up/x", 5, -time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	swap := func(from, to string) blob.Upload {
		changed := u
		changed.URL = strings.Replace(u.URL, from, to, 1)
		if changed.URL == u.URL {
			t.Fatalf("%s has no %s", u.URL, from)
		}
		return changed
	}
	for name, c := range map[string]struct {
		u    blob.Upload
		body string
		want int
	}{
		"too long": {u, "123456", 400}, "too short": {u, "1234", 400}, "expired": {late, "12345", 403},
		"other key": {swap("up/x", "up/y"), "12345", 403}, "other size": {swap("size=5", "size=6"), "123456", 403},
		"other time": {swap("expires=", "expires=9"), "12345", 403}, "no signature": {swap("signature=", "signature=x"), "12345", 403},
		"outside": {swap("up/x", "up/%2e%2e/%2e%2e/x"), "12345", 403},
	} {
		if code := upload(t, c.u, c.body); code != c.want {
			t.Errorf("%s: status %d, want %d", name, code, c.want)
		}
	}
	missing(t, d, "up/x")
	if files, err := os.ReadDir(path); err == nil && len(files) > 0 {
		t.Errorf("something was written: %v", files)
	}
}

// A reader that breaks off leaves nothing.
func TestUploadCutShort(t *testing.T) {
	t.Parallel()
	d, path := inDir(t)
	u, err := d.PresignPut(t.Context(), "up/x", 1<<20, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	pr, pw := io.Pipe()
	go func() {
		fmt.Fprint(pw, "half of it")
		pw.CloseWithError(errors.New("the line broke"))
	}()
	_, h := d.Gate()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, u.URL, pr)
	r.ContentLength = 1 << 20
	h.ServeHTTP(w, r)
	if w.Code < 400 {
		t.Errorf("status %d", w.Code)
	}
	missing(t, d, "up/x")
	if files, _ := os.ReadDir(filepath.Join(path, "up")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	s, err := blob.NewS3(t.Context(), blob.S3Options{Bucket: "b", Endpoint: "http://127.0.0.1:1", Credentials: credentials.NewStaticCredentialsProvider("key", "secret", "")})
	if err != nil {
		t.Fatal(err)
	}
	if f := fault.From(s.Put(t.Context(), "k", nil, blob.Meta{})); f.Code != "blobs_unavailable" || f.Kind != fault.Unavailable {
		t.Errorf("%v", f)
	}
}
