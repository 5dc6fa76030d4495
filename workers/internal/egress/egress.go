// Package egress is the way out to addresses that owners give: webhooks, and
// feeds. Whoever asks such an address asks through a Client; it refuses at
// connect time what is not public, after the name was looked up, so that no
// answer of a name server gets past it.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	rules "standmeet/shared/egress"
)

// Refused is why an address is not asked. No connection was made.
type Refused = rules.Refused

// ErrTooLarge is what reading a body past Options.MaxBody gives.
var ErrTooLarge = errors.New("egress: the body is larger than is read")

// Options of a Client. The zero Options admit public addresses alone.
type Options struct {
	// Rules say which addresses may be asked.
	Rules rules.Rules
	// Timeout is for one exchange from look-up to the body's end, however slowly
	// the bytes come; 0 is 20 s. Connecting may take a quarter of it, TLS another,
	// and the answer's head three quarters.
	Timeout time.Duration
	// MaxBody is the most that can be read of a body, in bytes and once it is
	// decompressed; 0 is 1 MiB.
	MaxBody int64
	// Resolver looks names up; nil is the system's.
	Resolver *net.Resolver
	// Roots are whose certificates count; nil is the system's.
	Roots *x509.CertPool
}

// maxHead is the most that the head of an answer may have, in bytes.
const maxHead = 64 << 10

// Client asks addresses that owners give. It follows no redirect, keeps no
// cookie, and takes no proxy from the environment.
//
// A connection may serve a second exchange with the same scheme, host and port,
// of whichever owner: the address behind it was checked when it was made and
// can't change, EGRESS_ALLOW doesn't change while the process lives, and no state
// of an exchange stays with it.
type Client struct {
	http     *http.Client
	rules    rules.Rules
	resolver *net.Resolver
	connect  time.Duration
	maxBody  int64
}

// New makes a client. One is enough for a process.
func New(o Options) *Client {
	if o.Timeout == 0 {
		o.Timeout = 20 * time.Second
	}
	if o.MaxBody == 0 {
		o.MaxBody = 1 << 20
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	c := &Client{rules: o.Rules, resolver: o.Resolver, connect: o.Timeout / 4, maxBody: o.MaxBody}
	c.http = &http.Client{
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            c.dial,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
			TLSHandshakeTimeout:    o.Timeout / 4,
			ResponseHeaderTimeout:  o.Timeout * 3 / 4,
			MaxResponseHeaderBytes: maxHead,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           100,
			MaxIdleConnsPerHost:    2,
			// Below what receivers keep one for (Node: 5 s): a POST on a connection
			// that is just being closed fails, and isn't repeated unseen.
			IdleConnTimeout: 4 * time.Second,
		},
	}
	return c
}

// Do sends a request and gives whatever answers, redirects too. The address is
// checked by the rules again, for they may have changed since it was kept. The
// body is bounded; the caller closes it. A refusal is a *Refused in the error's
// tree, and a name that could not be looked up a *net.DNSError; Explain has words
// for each.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	u, err := c.rules.URL(req.URL.String())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL, req.Host = u, ""
	deadline := time.Now().Add(c.http.Timeout)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, left: c.maxBody, deadline: deadline}
	return resp, nil
}

// Close ends the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// body is a response body that ends in ErrTooLarge when it is too large, and
// never in io.EOF past its time: a server that is told to stop may end an
// unfinished body as if it were whole.
type body struct {
	io.ReadCloser
	left     int64
	deadline time.Time
}

func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	// One byte more than may be read tells too large from just as large.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, ErrTooLarge
	}
	if errors.Is(err, io.EOF) && time.Now().After(b.deadline) {
		return n, context.DeadlineExceeded
	}
	return n, err
}

// dial looks the host up once, refuses it if any of its addresses is not public
// (a name that leads inside and outside is no mistake to be patient with), and
// connects to those same addresses; guarded looks at each once more as the system
// is about to connect.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.connect)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{}
	open := c.rules.Opens(host)
	if !open {
		dialer.ControlContext = c.guarded
	}
	addrs, err := c.lookup(ctx, host, open)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	for i, addr := range addrs {
		// What is left is shared by the addresses that are left.
		dialer.Timeout = time.Until(deadline) / time.Duration(len(addrs)-i)
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, network, net.JoinHostPort(addr.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// maxAddrs is how many addresses of a name are tried.
const maxAddrs = 8

// lookup gives at least one address, or an error.
func (c *Client) lookup(ctx context.Context, host string, open bool) ([]netip.Addr, error) {
	addr, err := netip.ParseAddr(host)
	if err == nil {
		return []netip.Addr{addr}, nil
	}
	name := host
	if !open {
		name += "." // no search list: it is for names of the own network
	}
	addrs, err := c.resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	for i, addr := range addrs {
		addrs[i] = addr.Unmap()
		if !open && c.rules.Addr(addr) != nil {
			return nil, &Refused{Code: "name_not_public", Reason: fmt.Sprintf("The name %s leads to an address that is not of the public internet.", host)}
		}
	}
	return addrs[:min(len(addrs), maxAddrs)], nil
}

// guarded is asked with the address that a socket is about to connect to.
func (c *Client) guarded(_ context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return &Refused{Code: "address_reserved", Reason: "The address is reserved, not of the public internet."}
	}
	return c.rules.Addr(at.Addr())
}

// Explain is one plain sentence for the owner on an error of Do or of reading its
// body. It holds no address that a name leads to, and nothing of the URL but its
// host. It is empty without an error.
func Explain(err error) string {
	var (
		refused     *Refused
		name        *net.DNSError
		op          *net.OpError
		timeout     net.Error
		host        x509.HostnameError
		authority   x509.UnknownAuthorityError
		certificate x509.CertificateInvalidError
		verify      *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		request     *url.Error
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Reason
	case errors.Is(err, ErrTooLarge):
		return "The answer was larger than is read."
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Sprintf("The name %s was not found.", strings.TrimSuffix(name.Name, "."))
	case errors.As(err, &name):
		return fmt.Sprintf("The name %s could not be looked up.", strings.TrimSuffix(name.Name, "."))
	case errors.As(err, &host):
		return "The certificate is for another name."
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		return "The certificate has expired, or does not count yet."
	case errors.As(err, &authority), errors.As(err, &certificate), errors.As(err, &verify):
		return "The certificate is not one that can be trusted."
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "The endpoint did not answer in TLS."
	case errors.As(err, &op) && op.Op == "remote error": // how crypto/tls calls an alert
		return "The endpoint broke TLS off."
	case errors.Is(err, context.Canceled):
		return "The exchange was broken off on our side."
	case errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		return "The endpoint did not accept the connection in time."
	case errors.As(err, &timeout) && timeout.Timeout():
		return "The endpoint did not answer in time."
	case errors.Is(err, syscall.ECONNREFUSED):
		return "The endpoint refused the connection."
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "There is no way to the endpoint."
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "The endpoint closed the connection before its answer was complete."
	case errors.As(err, &op):
		return "The connection failed."
	case errors.As(err, &request):
		return "The endpoint gave no answer that can be read."
	}
	return "The exchange failed."
}
