// Package link is a TCP connection's way to a server, which can be made worse.
package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/rs/zerolog"
)

// Link leads connections on to a server. Safe for concurrent use.
//
// The port is held from New to Close, also while the link is down: another process could take one that was given up, and
// a child that is being forked keeps it for a moment. So the listener is ours, and only what makes a connection worse
// is toxiproxy's.
type Link struct {
	listener net.Listener
	server   *toxiproxy.ApiServer
	proxy    *toxiproxy.Proxy // never started; it has the toxics
	serving  sync.WaitGroup

	mu            sync.Mutex
	down, blocked bool
	count         int // of the connections there were
	conns         map[net.Conn]bool
}

// New listens at an address and leads connections on to upstream. Close ends it.
func New(name, listen, upstream string) (*Link, error) {
	zerolog.SetGlobalLevel(zerolog.Disabled)   // the toxics have loggers of their own
	listener, err := net.Listen("tcp", listen) //nolint:noctx // it has no end but Close
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &Link{
		listener: listener, server: server, proxy: toxiproxy.NewProxy(server, name, listen, upstream),
		conns: map[net.Conn]bool{},
	}
	l.serving.Go(l.serve)
	return l, nil
}

// serve accepts connections until Close.
func (l *Link) serve() {
	for {
		client, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.serving.Go(func() { l.lead(client) })
		}
	}
}

// lead leads a connection on to the server, or resets it if the link is down or nobody listens there.
func (l *Link) lead(client net.Conn) {
	if !l.isUp() {
		reset(client)
		return
	}
	upstream, err := net.Dial("tcp", l.proxy.Upstream) //nolint:noctx // on this machine: it is refused at once
	if err != nil {
		reset(client)
		return
	}
	name, ok := l.add(client, upstream)
	if !ok { // down, meanwhile
		reset(client)
		_ = upstream.Close() // nothing was sent
		return
	}
	l.proxy.Toxics.StartLink(l.server, name+" up", client, &end{upstream, l}, stream.Upstream)
	l.proxy.Toxics.StartLink(l.server, name+" down", upstream, &end{client, l}, stream.Downstream)
}

// add adds the two connections of a client to those that end when the link is down, unless it is.
func (l *Link) add(client, upstream net.Conn) (name string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down || l.blocked {
		return "", false
	}
	l.count++
	l.conns[client], l.conns[upstream] = true, true
	return fmt.Sprintf("connection %d", l.count), true
}

// end is a connection that is forgotten when it is closed.
type end struct {
	net.Conn
	of *Link
}

func (e *end) Close() error {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	delete(e.of.conns, e.Conn)
	return e.Conn.Close()
}

// reset ends a connection as one that was refused looks to a client that had begun to talk.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // as good as it gets
	}
	_ = c.Close()
}

func (l *Link) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.down && !l.blocked
}

// closeAll closes all connections.
func (l *Link) closeAll() {
	for c := range l.conns {
		_ = c.Close() // it may have been closed from its other side
	}
	clear(l.conns)
}

// Address is where it listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Close ends the link and its connections.
func (l *Link) Close() {
	_ = l.listener.Close() // once
	l.Down()
	l.serving.Wait()
}

// Down closes all connections and resets new ones, until Up or Heal.
func (l *Link) Down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.closeAll()
}

// Up accepts connections, unless the link is blocked. One that is up already stays so.
func (l *Link) Up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// Block is Down, and keeps everything else from bringing the link up again, until Unblock.
func (l *Link) Block() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = true
	l.closeAll()
}

// Unblock is Up after Block.
func (l *Link) Unblock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked, l.down = false, false
}

// Cut closes all connections; new ones work.
func (l *Link) Cut() {
	l.Down()
	l.Up()
}

// Hole lets nothing through in either direction, and tells nobody, until Heal. New connections are accepted and silent
// too. What was sent meanwhile is lost with its connection.
func (l *Link) Hole() error {
	if err := l.spoil(`{"name":"hole-up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`); err != nil {
		return err
	}
	return l.Mute()
}

// Mute lets requests through but no answers, until Heal: the server has done what its client does not learn of.
func (l *Link) Mute() error {
	return l.spoil(`{"name":"hole-down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
}

// Slow delays what goes to the server and what comes back, and narrows the way there to a rate in KB/s, until Heal.
func (l *Link) Slow(latency time.Duration, rate int) error {
	for _, toxic := range []string{
		fmt.Sprintf(`{"name":"slow-up","type":"latency","stream":"upstream","attributes":{"latency":%[1]d,"jitter":%[1]d}}`,
			latency.Milliseconds()/2),
		fmt.Sprintf(`{"name":"slow-down","type":"latency","stream":"downstream","attributes":{"latency":%[1]d,"jitter":%[1]d}}`,
			latency.Milliseconds()/2),
		fmt.Sprintf(`{"name":"narrow","type":"bandwidth","stream":"upstream","attributes":{"rate":%d}}`, rate),
	} {
		if err := l.spoil(toxic); err != nil {
			return err
		}
	}
	return nil
}

// Heal makes the link well again. Its connections end: the proxy may drop bytes when it stops to hold them back, and a
// connection that goes on after a gap is a fault that no network has.
func (l *Link) Heal(ctx context.Context) {
	l.Down()
	l.proxy.Toxics.ResetToxics(ctx)
	l.Up()
}

func (l *Link) spoil(toxic string) error {
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		return fmt.Errorf("link %s: %s: %w", l.proxy.Name, toxic, err)
	}
	return nil
}
