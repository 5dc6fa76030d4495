package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"standmeet/shared/config"
	rules "standmeet/shared/egress"
)

// names is a name server in this process.
type names struct {
	*net.Resolver
	mu     sync.Mutex
	asked  []string
	answer func(name string, n int) (addrs []string, code dnsmessage.RCode)
	counts map[string]int
}

// serveNames answers with what answer gives for the nth look-up of a name; a
// look-up's A and AAAA questions count as one.
func serveNames(t testing.TB, answer func(name string, n int) ([]string, dnsmessage.RCode)) *names {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &names{answer: answer, counts: map[string]int{}}
	s.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", pc.LocalAddr().String())
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			buf := make([]byte, 1500)
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := s.reply(buf[:n]); out != nil {
				_, _ = pc.WriteTo(out, from)
			}
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return s
}

// names that were asked for.
func (s *names) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *names) reply(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	s.mu.Lock()
	s.asked = append(s.asked, name)
	half := s.counts[name]
	s.counts[name]++
	s.mu.Unlock()
	addrs, code := s.answer(name, half/2)
	if code == rcodeSilent {
		return nil
	}
	out := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true, RCode: code},
		Questions: m.Questions,
	}
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	b, err := out.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

const rcodeSilent = dnsmessage.RCode(99) // no answer at all

func static(addrs ...string) func(string, int) ([]string, dnsmessage.RCode) {
	return func(string, int) ([]string, dnsmessage.RCode) { return addrs, 0 }
}

// counted is a listener that counts.
type counted struct {
	net.Listener
	n atomic.Int64
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// serve answers HTTPS as *.example.com, on the address given.
func serve(t testing.TB, at string, h http.HandlerFunc) (*httptest.Server, *counted) {
	t.Helper()
	ln, err := net.Listen("tcp4", at)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	c := &counted{Listener: ln}
	s.Listener = c
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, c
}

func port(s *httptest.Server) string {
	_, p, _ := net.SplitHostPort(s.Listener.Addr().String())
	return p
}

func roots(s *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

func allow(networks ...string) rules.Rules {
	var e config.Egress
	for _, n := range networks {
		e.Networks = append(e.Networks, netip.MustParsePrefix(n))
	}
	return rules.New(e)
}

func get(t testing.TB, c *Client, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(req)
}

// failure is why url can't be asked, nil if it can.
func failure(t testing.TB, c *Client, url string) error {
	t.Helper()
	resp, err := get(t, c, url)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// code is that of the refusal that err must be.
func code(t testing.TB, err error) string {
	t.Helper()
	var r *Refused
	if !errors.As(err, &r) {
		t.Errorf("%v, want a refusal", err)
		return ""
	}
	if Explain(err) != r.Reason {
		t.Errorf("Explain: %q, want %q", Explain(err), r.Reason)
	}
	return r.Code
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }

func TestRebindingDoesNotGetThrough(t *testing.T) {
	t.Parallel()
	public, _ := serve(t, "127.0.0.1:0", ok)
	inside, connections := serve(t, "127.0.0.2:"+port(public), ok)
	_ = inside
	ns := serveNames(t, func(_ string, n int) ([]string, dnsmessage.RCode) {
		return []string{"127.0.0." + []string{"1", "2"}[min(n, 1)]}, 0
	})
	c := New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.1/32"), Resolver: ns.Resolver, Roots: roots(public)})
	url := "https://rebind.example.com:" + port(public) + "/h"
	resp, err := get(t, c, url)
	if err != nil {
		t.Fatalf("while the name leads outside: %v", err)
	}
	resp.Body.Close()
	c.Close()
	if err := failure(t, c, url); code(t, err) != "name_not_public" {
		t.Errorf("once the name leads inside: %v", err)
	}
	if connections.n.Load() != 0 {
		t.Errorf("%d connections inside", connections.n.Load())
	}
}

// TestRebindingAtRandom: whichever answer comes when, nothing arrives inside.
func TestRebindingAtRandom(t *testing.T) {
	t.Parallel()
	public, _ := serve(t, "127.0.0.1:0", ok)
	_, connections := serve(t, "127.0.0.2:"+port(public), ok)
	var n atomic.Int64
	ns := serveNames(t, func(string, int) ([]string, dnsmessage.RCode) {
		return []string{"127.0.0." + []string{"1", "2", "1"}[n.Add(1)%3]}, 0
	})
	c := New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.1/32"), Resolver: ns.Resolver, Roots: roots(public)})
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 15 {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://flap.example.com:"+port(public)+"/h", http.NoBody)
				req.Close = true
				if resp, err := c.Do(req); err == nil {
					admitted.Add(1)
					resp.Body.Close()
				} else if code(t, err) == "name_not_public" {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if connections.n.Load() != 0 || admitted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d connections inside; %d admitted, %d refused, want none and some of both",
			connections.n.Load(), admitted.Load(), refused.Load())
	}
}

func TestNameWithAPrivateAddressAmongOthers(t *testing.T) {
	t.Parallel()
	public, outside := serve(t, "127.0.0.1:0", ok)
	for _, addrs := range [][]string{
		{"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "::1"}, {"127.0.0.1", "::ffff:127.0.0.2"},
		{"127.0.0.1", "64:ff9b::a9fe:a9fe"}, {"127.0.0.1", "2002:7f00:1::"}, {"127.0.0.1", "fd00:ec2::254"}, {"10.0.0.5"},
		{"169.254.169.254"}, {"168.63.129.16"}, {"0.0.0.0"}, {"::"}, {"::127.0.0.1"}, {"fec0::1"}, {"64:ff9b:1::a00:5"},
		{"2600:1f00::5efe:a00:5"}, {"100.100.100.200"}, {"224.0.0.1"}, {"255.255.255.255"},
	} {
		c := New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.1/32"), Resolver: serveNames(t, static(addrs...)).Resolver, Roots: roots(public)})
		if err := failure(t, c, "https://many.example.com:"+port(public)+"/h"); code(t, err) != "name_not_public" {
			t.Errorf("%v: %v", addrs, err)
		} else if strings.ContainsAny(Explain(err), "0123456789") {
			t.Errorf("%v: the reason tells where the name leads: %q", addrs, Explain(err))
		}
	}
	if outside.n.Load() != 0 {
		t.Errorf("%d connections", outside.n.Load())
	}
}

// TestConnectIsGuarded: the socket's own check holds when everything before it
// is left out.
func TestConnectIsGuarded(t *testing.T) {
	t.Parallel()
	s, connections := serve(t, "127.0.0.1:0", ok)
	c := New(Options{})
	for _, at := range []string{"127.0.0.1:" + port(s), "[::ffff:127.0.0.1]:" + port(s), "0.0.0.0:" + port(s), "[::]:" + port(s)} {
		if _, err := c.dial(t.Context(), "tcp", at); code(t, err) == "" {
			t.Errorf("%s: %v", at, err)
		}
	}
	for _, network := range []string{"udp4", "unix", "tcp"} {
		if err := c.guarded(t.Context(), network, "8.8.8.8:443", nil); code(t, err) == "" {
			t.Errorf("%s: %v", network, err)
		}
	}
	if connections.n.Load() != 0 {
		t.Errorf("%d connections", connections.n.Load())
	}
}

// TestHostileURLsAreNotAsked: the rules hold again when an address is asked,
// without a single look-up.
func TestHostileURLsAreNotAsked(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../shared/egress/testdata/hostile-urls.txt")
	if err != nil {
		t.Fatal(err)
	}
	ns := serveNames(t, static("127.0.0.1"))
	c := New(Options{Timeout: 2 * time.Minute, Resolver: ns.Resolver})
	n := 0
	for line := range strings.Lines(string(b)) {
		raw, want, found := strings.Cut(strings.TrimSpace(line), "\t")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, raw, http.NoBody)
		if !found || err != nil || strings.HasSuffix(raw, "#") || strings.HasSuffix(raw, ":/h") || want == "url_characters" {
			continue // no request can be made of it, or it loses the fault on the way
		}
		n++
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if code(t, err) == "" {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
	if asked := ns.names(); n < 60 || len(asked) != 0 {
		t.Errorf("%d addresses, %v looked up", n, asked)
	}
}

func TestAllowedNameMayLeadInside(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(ok))
	t.Cleanup(s.Close)
	c := New(Options{
		Rules:    rules.New(config.Egress{Hosts: []string{"receiver"}}),
		Resolver: serveNames(t, static("127.0.0.1")).Resolver,
		Timeout:  2 * time.Minute,
	})
	resp, err := get(t, c, "http://receiver:"+port(s)+"/h")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := failure(t, c, "https://other.example.com:"+port(s)+"/h"); code(t, err) != "name_not_public" {
		t.Errorf("another name for the same address: %v", err)
	}
}

func TestLookUpsSkipTheSearchList(t *testing.T) {
	t.Parallel()
	ns := serveNames(t, func(string, int) ([]string, dnsmessage.RCode) { return nil, dnsmessage.RCodeNameError })
	err := failure(t, New(Options{Timeout: 2 * time.Minute, Resolver: ns.Resolver}), "https://db.prod.example.org/h")
	var failed *net.DNSError
	if !errors.As(err, &failed) || !failed.IsNotFound || Explain(err) != "The name db.prod.example.org was not found." {
		t.Errorf("%v: %q", err, Explain(err))
	}
	for _, name := range ns.names() {
		if name != "db.prod.example.org" {
			t.Errorf("%s was looked up", name)
		}
	}
}

// TestLookUpFailuresAreNoRefusals: a name server that fails is asked again later.
func TestLookUpFailuresAreNoRefusals(t *testing.T) {
	t.Parallel()
	for _, rcode := range []dnsmessage.RCode{dnsmessage.RCodeNameError, dnsmessage.RCodeServerFailure, dnsmessage.RCodeRefused, 0, rcodeSilent} {
		ns := serveNames(t, func(string, int) ([]string, dnsmessage.RCode) { return nil, rcode })
		err := failure(t, New(Options{Resolver: ns.Resolver, Timeout: 8 * time.Second}), "https://down.example.org/h")
		var (
			failed  *net.DNSError
			refused *Refused
		)
		if !errors.As(err, &failed) || errors.As(err, &refused) || !strings.Contains(Explain(err), "down.example.org") {
			t.Errorf("%v: %v: %q", rcode, err, Explain(err))
		}
	}
}

func TestRedirectsAreAnswers(t *testing.T) {
	t.Parallel()
	_, connections := serve(t, "127.0.0.2:0", ok)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s, _ := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+connections.Addr().String()+"/h", status)
		})
		resp, err := get(t, New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.0/8"), Roots: roots(s)}), s.URL)
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%d: %v, %v", status, resp, err)
		}
		resp.Body.Close()
	}
	if connections.n.Load() != 0 {
		t.Errorf("%d redirects were followed", connections.n.Load())
	}
}

func TestDrippingEndsInTime(t *testing.T) {
	t.Parallel()
	drip := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil && r.URL.Path == "/drip" {
			_, _ = w.Write([]byte("."))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	s, _ := serve(t, "127.0.0.1:0", drip)
	for _, h2 := range []bool{true, false} {
		c := New(Options{Rules: allow("127.0.0.1/32"), Roots: roots(s), Timeout: time.Minute})
		c.http.Transport.(*http.Transport).ForceAttemptHTTP2 = h2
		if err := failure(t, c, s.URL); err != nil { // connects in its own time
			t.Fatal(err)
		}
		c.http.Timeout = 2 * time.Second
		begin := time.Now()
		resp, err := get(t, c, s.URL+"/drip")
		if err != nil {
			t.Fatal(err)
		}
		if (resp.ProtoMajor == 2) != h2 {
			t.Errorf("HTTP/%d", resp.ProtoMajor)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if took := time.Since(begin); err == nil || took > 15*time.Second || Explain(err) != "The endpoint did not answer in time." {
			t.Errorf("after %v: %v: %q", took, err, Explain(err))
		}
	}
}

// raw answers each connection with what f does with it, without TLS.
func raw(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer conn.Close(); f(conn) })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	request := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
	write := func(s string) func(net.Conn) {
		return func(c net.Conn) { request(c); _, _ = io.WriteString(c, s) }
	}
	for name, test := range map[string]struct {
		answer func(net.Conn)
		want   string
	}{
		"hangs":      {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "The endpoint did not answer in time."},
		"drips head": {dripHead, "The endpoint did not answer in time."},
		"closes":     {request, "The endpoint closed the connection before its answer was complete."},
		"cuts head":  {write("HTTP/1.1 200 OK\r\nX: y\r\n"), "The endpoint closed the connection before its answer was complete."},
		"no HTTP":    {write("220 mail ESMTP\r\n"), "The endpoint gave no answer that can be read."},
		"huge head":  {write("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHead) + "\r\n\r\n"), "The endpoint gave no answer that can be read."},
		"many heads": {write("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxHead) + "\r\n"), "The endpoint gave no answer that can be read."},
		"100s for ever": {func(c net.Conn) {
			request(c)
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
					return
				}
			}
		}, "The endpoint gave no answer that can be read."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(Options{Rules: allow("127.0.0.1/32"), Timeout: 4 * time.Second})
			begin := time.Now()
			resp, err := get(t, c, "http://"+raw(t, test.answer)+"/h")
			if err == nil {
				resp.Body.Close()
			}
			if Explain(err) != test.want || time.Since(begin) > 15*time.Second {
				t.Errorf("after %v: %v: %q", time.Since(begin), err, Explain(err))
			}
		})
	}
}

func dripHead(c net.Conn) {
	_, _ = c.Read(make([]byte, 4096))
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := io.WriteString(c, "x"); err != nil {
			return
		}
	}
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	ln.Close()
	err = failure(t, New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.1/32")}), "http://"+at)
	if Explain(err) != "The endpoint refused the connection." {
		t.Errorf("%v: %q", err, Explain(err))
	}
}

func TestSecondAddressIsTried(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, "127.0.0.1:0", ok) // nothing listens at 127.0.0.3
	for _, addrs := range [][]string{{"127.0.0.3", "127.0.0.1"}, {"127.0.0.1", "127.0.0.3"}} {
		c := New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.0/30"), Resolver: serveNames(t, static(addrs...)).Resolver, Roots: roots(s)})
		resp, err := get(t, c, "https://two.example.com:"+port(s))
		if err != nil {
			t.Errorf("%v: %v", addrs, err)
			continue
		}
		resp.Body.Close()
	}
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, 10<<20)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	sizes := map[string]int{"/fits": 1000, "/over": 1001, "/huge": 10 << 20, "/none": 0}
	s, _ := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bomb" {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
			return
		}
		_, _ = w.Write(make([]byte, sizes[r.URL.Path]))
	})
	c := New(Options{Rules: allow("127.0.0.1/32"), Roots: roots(s), MaxBody: 1000, Timeout: 2 * time.Minute})
	for path, want := range map[string]struct {
		n   int
		err error
	}{"/fits": {1000, nil}, "/over": {1000, ErrTooLarge}, "/huge": {1000, ErrTooLarge}, "/none": {0, nil}, "/bomb": {1000, ErrTooLarge}} {
		resp, err := get(t, c, s.URL+path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if len(b) != want.n || !errors.Is(err, want.err) {
			t.Errorf("%s: %d bytes, %v; want %d, %v", path, len(b), err, want.n, want.err)
		}
	}
}

func TestEndPastItsTimeIsNoEnd(t *testing.T) {
	t.Parallel()
	for deadline, want := range map[time.Time]error{time.Now().Add(time.Hour): nil, time.Now().Add(-time.Second): context.DeadlineExceeded} {
		b := &body{ReadCloser: io.NopCloser(strings.NewReader("part")), left: 100, deadline: deadline}
		if got, err := io.ReadAll(b); string(got) != "part" || !errors.Is(err, want) {
			t.Errorf("%q, %v; want %v", got, err, want)
		}
	}
}

func FuzzBody(f *testing.F) {
	f.Add([]byte("hello"), int64(3), 2)
	f.Add([]byte("hello"), int64(5), 16)
	f.Fuzz(func(t *testing.T, content []byte, most int64, chunk int) {
		if most < 0 || chunk < 1 || chunk > 1<<16 {
			return
		}
		b := &body{ReadCloser: io.NopCloser(bytes.NewReader(content)), left: most, deadline: time.Now().Add(time.Hour)}
		var got []byte
		var err error
		for err == nil {
			p := make([]byte, chunk)
			var n int
			n, err = b.Read(p)
			got = append(got, p[:n]...)
		}
		want, wantErr := content, io.EOF
		if int64(len(content)) > most {
			want, wantErr = content[:most], ErrTooLarge
		}
		if !bytes.Equal(got, want) || !errors.Is(err, wantErr) {
			t.Fatalf("%d of %d bytes, %v; at most %d", len(got), len(content), err, most)
		}
	})
}

// certificate is of its own making, for 127.0.0.1 unless names are given.
func certificate(t *testing.T, expires time.Time, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: expires, DNSNames: names,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if len(names) == 0 {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestBadTLS(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		server  *tls.Config
		trusted bool
		want    string
	}{
		"good":          {&tls.Config{Certificates: []tls.Certificate{certificate(t, later)}}, true, ""},
		"own authority": {&tls.Config{Certificates: []tls.Certificate{certificate(t, later)}}, false, "The certificate is not one that can be trusted."},
		"expired":       {&tls.Config{Certificates: []tls.Certificate{certificate(t, time.Now().Add(-time.Hour))}}, true, "The certificate has expired, or does not count yet."},
		"other name":    {&tls.Config{Certificates: []tls.Certificate{certificate(t, later, "b.example.com")}}, true, "The certificate is for another name."},
		"TLS 1.1":       {&tls.Config{Certificates: []tls.Certificate{certificate(t, later)}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, true, "The endpoint broke TLS off."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := x509.NewCertPool()
			if test.trusted {
				pool.AddCert(test.server.Certificates[0].Leaf)
			}
			s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
			s.TLS, s.Config.ErrorLog = test.server, slog.NewLogLogger(slog.DiscardHandler, 0)
			s.StartTLS()
			t.Cleanup(s.Close)
			resp, err := get(t, New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.1/32"), Roots: pool}), s.URL)
			if err == nil {
				resp.Body.Close()
			}
			if Explain(err) != test.want {
				t.Errorf("%v: %q, want %q", err, Explain(err), test.want)
			}
		})
	}
	for name, greeting := range map[string]string{"HTTP": "HTTP/1.1 400 Bad Request\r\n\r\n", "SSH": "SSH-2.0-x\r\n"} {
		at := raw(t, func(c net.Conn) { _, _ = io.WriteString(c, greeting); _, _ = io.Copy(io.Discard, c) })
		err := failure(t, New(Options{Rules: allow("127.0.0.1/32"), Timeout: 8 * time.Second}), "https://"+at)
		if Explain(err) != "The endpoint did not answer in TLS." {
			t.Errorf("%s: %v: %q", name, err, Explain(err))
		}
	}
}

// TestNothingIsKeptBetweenOwners: connections are shared by place alone, and
// carry nothing over.
func TestNothingIsKeptBetweenOwners(t *testing.T) {
	t.Parallel()
	var cookies atomic.Int64
	s, connections := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		cookies.Add(int64(len(r.Cookies())))
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		fmt.Fprint(w, r.Host)
	})
	c := New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.1/32"), Resolver: serveNames(t, static("127.0.0.1")).Resolver, Roots: roots(s)})
	for _, host := range []string{"a.example.com", "a.example.com", "b.example.com"} {
		resp, err := get(t, c, "https://"+host+":"+port(s))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != host+":"+port(s) {
			t.Errorf("asked as %s, want %s", b, host)
		}
	}
	if connections.n.Load() != 2 || cookies.Load() != 0 {
		t.Errorf("%d connections and %d cookies, want one for each name and none", connections.n.Load(), cookies.Load())
	}
	if c.http.Transport.(*http.Transport).Proxy != nil || c.http.Jar != nil {
		t.Error("a proxy would connect for us, and a jar would remember")
	}
}

// TestHostHeaderIsOfTheURL: no other host is asked for than the one checked.
func TestHostHeaderIsOfTheURL(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })
	c := New(Options{Timeout: 2 * time.Minute, Rules: allow("127.0.0.1/32"), Roots: roots(s)})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "internal.example.com"
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); "https://"+string(b) != s.URL {
		t.Errorf("asked as %s", b)
	}
}

func TestExplainIsPlain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for err, want := range map[error]string{
		nil:                              "",
		errors.New("10.0.0.5"):           "The exchange failed.",
		ctx.Err():                        "The exchange was broken off on our side.",
		context.DeadlineExceeded:         "The endpoint did not answer in time.",
		fmt.Errorf("x: %w", ErrTooLarge): "The answer was larger than is read.",
	} {
		if got := Explain(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
