package rabbitmq

import (
	"net"
	"runtime"
	"sync"
)

// gatherLimit is how many bytes wait for the one write that is under way before writers wait too.
const gatherLimit = 64 << 10

// gatherer is a connection that sends with one system call what was written while the last one was under way. The
// client library flushes after every message, and a packet for each of them costs both ends more than the message does.
// Nothing waits for more to come. An error of a write is that of the next one, and the connection is cut, so that the
// reader learns of it at once.
type gatherer struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond // there is something to send, or room, or an end
	waiting []byte
	err     error
}

// gather wraps a connection; its goroutine ends when the connection is closed through it, or a write fails.
func gather(conn net.Conn, tasks *sync.WaitGroup) *gatherer {
	g := &gatherer{Conn: conn}
	g.changed.L = &g.mu
	tasks.Go(g.send)
	return g
}

// Write implements [net.Conn]. It keeps no part of p.
func (g *gatherer) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil && len(g.waiting) >= gatherLimit {
		g.changed.Wait()
	}
	if g.err != nil {
		return 0, g.err
	}
	g.waiting = append(g.waiting, p...)
	g.changed.Broadcast()
	return len(p), nil
}

// Close implements [net.Conn]. What has not been sent is not sent any more.
func (g *gatherer) Close() error {
	g.end(net.ErrClosed)
	return g.Conn.Close()
}

func (g *gatherer) end(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.changed.Broadcast()
}

// send sends what was written, until the connection ends.
func (g *gatherer) send() {
	var sending []byte
	for {
		var ok bool
		if sending, ok = g.take(sending); !ok {
			return
		}
		if _, err := g.Conn.Write(sending); err != nil {
			g.end(err)
			_ = g.Conn.Close() // it ends the reader too
			return
		}
	}
}

// take exchanges what waits for an empty buffer.
func (g *gatherer) take(empty []byte) (full []byte, ok bool) {
	runtime.Gosched() // who writes many messages in a row goes first
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil && len(g.waiting) == 0 {
		g.changed.Wait()
	}
	if g.err != nil {
		return nil, false
	}
	full, g.waiting = g.waiting, empty[:0]
	g.changed.Broadcast()
	return full, true
}
