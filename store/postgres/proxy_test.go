package postgres_test

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy forwards connections to a server, and can let them go dead without a word.
type proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	open   *sync.Cond
	frozen map[net.Conn]bool
	conns  []net.Conn
	done   sync.WaitGroup
}

func newProxy(t *testing.T, port int) *proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String(), frozen: map[net.Conn]bool{}}
	p.open = sync.NewCond(&p.mu)
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		clear(p.frozen)
		p.open.Broadcast()
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *proxy) url() string {
	_, port, _ := strings.Cut(p.listener.Addr().String(), ":")
	return "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target) //nolint:noctx // ends with the server
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.done.Go(func() { p.copy(client, server) })
		p.done.Go(func() { p.copy(server, client) })
	}
}

func (p *proxy) copy(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.frozen[from] || p.frozen[to] {
			p.open.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// freeze makes a black hole of the connections there are; new ones work.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		p.frozen[c] = true
	}
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.frozen)
	p.open.Broadcast()
}
