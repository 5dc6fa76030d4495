//go:build unix

package pgtest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy stands between a test and its database, and can make the connections
// that are open fall silent: they stay established, but nothing more passes
// through them, as after a firewall dropped their state. New ones work.
type Proxy struct {
	URL string

	target string
	mu     sync.Mutex
	conns  map[*proxied]struct{}
}

type proxied struct {
	client, server net.Conn
	silent         chan struct{}
}

// NewProxy starts a proxy in front of the database at url.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: u.Host, conns: map[*proxied]struct{}{}}
	u.Host = l.Addr().String()
	p.URL = u.String()
	go p.serve(l)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.conns {
			c.client.Close()
			c.server.Close()
		}
	})
	return p
}

// Silence makes every connection that is open now fall silent.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		close(c.silent)
		delete(p.conns, c)
		// the server's end goes, the client's stays open and mute
		c.server.Close()
	}
}

// Ports are those that the server sees the open connections come from, as
// pg_stat_activity's client_port tells.
func (p *Proxy) Ports() (ports []int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		ports = append(ports, int32(c.server.LocalAddr().(*net.TCPAddr).Port))
	}
	return ports
}

func (p *Proxy) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		c := &proxied{client: client, server: server, silent: make(chan struct{})}
		p.mu.Lock()
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		go c.pipe(client, server)
		go c.pipe(server, client)
	}
}

// pipe copies until either side ends, which ends both, or silence falls.
func (c *proxied) pipe(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-c.silent:
			if from == c.client && err == nil {
				continue // swallowed
			}
			return
		default:
		}
		if n > 0 {
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}
