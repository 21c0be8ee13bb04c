// Package link is a TCP connection's way to a server, which can be made worse.
package link

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Link leads connections on to a server. Safe for concurrent use.
//
// The port is held from New to Close, also while the link is down: another process could take one that was given up, and
// a child that is being forked keeps it for a moment.
//
// toxiproxy was tried before. It gives up the port, and its toxics wait for each other for ever when one is removed from a
// connection that is being closed.
type Link struct {
	upstream string
	listener net.Listener
	serving  sync.WaitGroup

	mu            sync.Mutex
	down, blocked bool
	there, back   way
	conns         map[net.Conn]bool
}

// way is what becomes of the bytes that go in one direction.
type way struct {
	hole    bool          // they are lost
	latency time.Duration // at most
	rate    int           // bytes a second; 0 is no limit
}

// New listens at an address and leads connections on to upstream. Close ends it.
func New(name, listen, upstream string) (*Link, error) {
	listener, err := net.Listen("tcp", listen) //nolint:noctx // it has no end but Close
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	l := &Link{upstream: upstream, listener: listener, conns: map[net.Conn]bool{}}
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
		if err != nil { // too many open files, for example
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // rather than try at once
			continue
		}
		l.serving.Go(func() { l.lead(client) })
	}
}

// lead leads a connection on to the server, or resets it if the link is down or nobody listens there.
func (l *Link) lead(client net.Conn) {
	if !l.add(client) {
		reset(client)
		return
	}
	defer l.end(client)
	server, err := net.Dial("tcp", l.upstream) //nolint:noctx // on this machine: it is refused at once
	if err != nil {
		reset(client)
		return
	}
	defer func() { _ = server.Close() }() // for the second time
	if !l.add(server) {                   // down, meanwhile
		return
	}
	defer l.end(server)
	var leading sync.WaitGroup
	for _, direction := range []struct {
		from, to net.Conn
		way      *way
	}{{client, server, &l.there}, {server, client, &l.back}} {
		leading.Go(func() {
			l.pump(direction.from, direction.to, direction.way)
			l.end(client)
			l.end(server)
		})
	}
	leading.Wait()
}

// chunk is what was read at once.
type chunk struct {
	at    time.Time
	bytes []byte
}

// pump hands on what comes from one side to the other, until either ends.
func (l *Link) pump(from, to net.Conn, w *way) {
	chunks := make(chan chunk, 64)
	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case chunks <- chunk{time.Now(), buffer[:n]}:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer reading.Wait()
	defer l.end(from)
	defer close(done)
	for c := range chunks {
		way := l.wayNow(w)
		if way.hole {
			continue
		}
		time.Sleep(way.delay(c)) //nolint:forbidigo // that is its purpose
		if _, err := to.Write(c.bytes); err != nil {
			return
		}
	}
}

func (l *Link) wayNow(w *way) way {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *w
}

// delay is how long a chunk has still to wait.
func (w way) delay(c chunk) (d time.Duration) {
	if w.latency > 0 {
		d = max(0, rand.N(w.latency)-time.Since(c.at)) //nolint:gosec // no secret
	}
	if w.rate > 0 {
		d += time.Duration(len(c.bytes)) * time.Second / time.Duration(w.rate)
	}
	return d
}

// add adds a connection to those that end when the link goes down, unless it is down.
func (l *Link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down || l.blocked {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *Link) end(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	_ = c.Close() // perhaps not for the first time
}

// endAll ends all connections; the caller has the lock.
func (l *Link) endAll() {
	for c := range l.conns {
		_ = c.Close() // it may have been closed from its other side
	}
	clear(l.conns)
}

// reset ends a connection as one that was refused looks to a client that had begun to talk.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // as good as it gets
	}
	_ = c.Close()
}

// Address is where it listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Close ends the link and its connections.
func (l *Link) Close() {
	_ = l.listener.Close() // once
	l.Down()
	l.serving.Wait()
}

// Down ends all connections and resets new ones, until Up or Heal.
func (l *Link) Down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.endAll()
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
	l.endAll()
}

// Unblock is Up after Block.
func (l *Link) Unblock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked, l.down = false, false
}

// Cut ends all connections; new ones work.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endAll()
}

// Hole lets nothing through in either direction, and tells nobody, until Heal. New connections are accepted and silent
// too. What was sent meanwhile is lost with its connection.
func (l *Link) Hole() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.there.hole, l.back.hole = true, true
}

// Mute lets requests through but no answers, until Heal: the server has done what its client does not learn of.
func (l *Link) Mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back.hole = true
}

// Slow delays what goes to the server and what comes back, each by at most the latency, and narrows the way there to a
// rate in bytes a second, until Heal.
func (l *Link) Slow(latency time.Duration, rate int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.there.latency, l.there.rate, l.back.latency = latency, rate, latency
}

// Heal makes the link well again. Its connections end: one that goes on after a gap is a fault that no network has.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endAll()
	l.there, l.back, l.down = way{}, way{}, false
}
