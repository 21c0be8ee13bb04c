// Package link is a TCP connection's way to a server, which can be made worse.
package link

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Link leads connections on to a server. Safe for concurrent use.
type Link struct {
	mu      sync.Mutex
	proxy   *toxiproxy.Proxy
	blocked bool
}

// New listens at an address and leads connections on to upstream. Close ends it.
func New(name, listen, upstream string) (*Link, error) {
	zerolog.SetGlobalLevel(zerolog.Disabled) // the toxics have loggers of their own
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &Link{proxy: toxiproxy.NewProxy(server, name, listen, upstream)}
	if err := l.Up(); err != nil {
		return nil, err
	}
	return l, nil
}

// Address is where it listens.
func (l *Link) Address() string { return l.proxy.Listen }

// Close ends the link and its connections.
func (l *Link) Close() { l.Down() }

// Down closes all connections and refuses new ones, until Up or Heal.
func (l *Link) Down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxy.Stop()
}

// Up accepts connections, unless the link is blocked. One that is up already stays so.
func (l *Link) Up() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start()
}

func (l *Link) start() error {
	if l.blocked || l.proxy.Enabled {
		return nil
	}
	if err := l.proxy.Start(); err != nil {
		return fmt.Errorf("link %s: %w", l.proxy.Name, err)
	}
	return nil
}

// Block is Down, and keeps everything else from bringing the link up again, until Unblock.
func (l *Link) Block() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = true
	l.proxy.Stop()
}

// Unblock is Up after Block.
func (l *Link) Unblock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = false
	return l.start()
}

// Cut closes all connections; new ones work.
func (l *Link) Cut() error {
	l.Down()
	return l.Up()
}

// Hole lets nothing through in either direction, and tells nobody, until Heal. New connections are accepted and silent
// too. What was sent meanwhile is lost with its connection.
func (l *Link) Hole() error {
	if err := l.add(`{"name":"hole-up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`); err != nil {
		return err
	}
	return l.Mute()
}

// Mute lets requests through but no answers, until Heal: the server has done what its client does not learn of.
func (l *Link) Mute() error {
	return l.add(`{"name":"hole-down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
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
		if err := l.add(toxic); err != nil {
			return err
		}
	}
	return nil
}

// Heal makes the link well again. Its connections end: the proxy may drop bytes when it stops to hold them back, and a
// connection that goes on after a gap is a fault that no network has.
func (l *Link) Heal(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxy.Stop()
	l.proxy.Toxics.ResetToxics(ctx)
	return l.start()
}

func (l *Link) add(toxic string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		return fmt.Errorf("link %s: %s: %w", l.proxy.Name, toxic, err)
	}
	return nil
}
