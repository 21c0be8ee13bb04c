package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
)

// dialer makes connections.
type dialer struct {
	config Config
	tls    *tls.Config // nil without TLS
	lock   string      // the queue that one connection of ours owns; empty for none
	next   atomic.Uint32
	tasks  *sync.WaitGroup
}

func newDialer(config Config) (*dialer, error) {
	d := &dialer{config: config, tasks: &sync.WaitGroup{}}
	if !config.TLS.IsZero() {
		var err error
		if d.tls, err = config.TLS.config(); err != nil {
			return nil, err
		}
	}
	if !config.DisableLock {
		d.lock = "outbox.publisher." + core.NewEventID()
	}
	return d, nil
}

// dial connects to the first address that works, beginning with another one each time, and takes the lock.
func (d *dialer) dial(ctx context.Context) (*link, error) {
	var faults []error
	first := int(d.next.Add(1) - 1)
	for i := range d.config.Addresses {
		address := d.config.Addresses[(first+i)%len(d.config.Addresses)]
		conn, raw, err := d.dialOne(ctx, address)
		if err != nil {
			faults = append(faults, &dialError{address, err})
			if ctx.Err() != nil {
				break
			}
			continue
		}
		l := newLink(conn, raw, d.tasks, d.config.Logger)
		if d.lock != "" {
			if err := l.takeLock(ctx, d.lock); err != nil {
				l.close(ctx)
				return nil, &dialError{address, fmt.Errorf(
					"declare the exclusive queue %q (see Config.DisableLock): %w", d.lock, err)}
			}
		}
		return l, nil
	}
	return nil, errors.Join(faults...)
}

// dialOne makes one connection. The context ends every step of it.
func (d *dialer) dialOne(ctx context.Context, address string) (*amqp.Connection, net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.config.DialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // what is closed with bytes unsent must not send them later
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	conn, err := d.open(ctx, raw, address)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return nil, nil, err
	}
	return conn, raw, nil
}

// open does the handshakes of TLS and AMQP.
func (d *dialer) open(ctx context.Context, raw net.Conn, address string) (*amqp.Connection, error) {
	stream := raw
	if d.tls != nil {
		config := d.tls.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		encrypted := tls.Client(raw, config)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		stream = encrypted
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(d.config.ConnectionName)
	gathered := gather(stream, d.tasks)
	conn, err := amqp.Open(gathered, amqp.Config{
		SASL: []amqp.Authentication{d.auth()}, Vhost: d.config.VHost, FrameSize: d.config.FrameMax,
		Heartbeat: d.config.Heartbeat, Properties: properties, Locale: "en_US",
	})
	if err != nil {
		_ = gathered.Close() // whatever is wrong with it
	}
	return conn, err
}

func (d *dialer) auth() amqp.Authentication {
	if d.config.Mechanism == MechanismExternal {
		return &amqp.ExternalAuth{}
	}
	return &amqp.PlainAuth{Username: d.config.Username, Password: string(d.config.Password)}
}

// takeLock declares an exclusive queue, which belongs to one connection at a time and is gone when the server has dealt
// with all that came over that connection. So nothing of the connection before this one is stored after it returns.
func (l *link) takeLock(ctx context.Context, name string) error {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := l.withChannel(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(name, false, false, true, false, nil)
			return err
		})
		var reply *amqp.Error
		if !errors.As(err, &reply) || reply.Code != amqp.ResourceLocked {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("the server still holds our last connection, and may store what it got from it: %w", err)
		}
	}
}

// connector keeps the one connection of a Broker.
type connector struct {
	dial  func(context.Context) (*link, error)
	tasks *sync.WaitGroup // of all links
	turn  chan struct{}   // taken by who looks at or replaces the link
	link  *link           // nil when there is none; belongs to who has the turn
}

// connect returns the link, or a new one when that is lost.
func (c *connector) connect(ctx context.Context) (*link, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	if c.link != nil && !c.link.conn.IsClosed() {
		return c.link, nil
	}
	l, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.link = l
	return l, nil
}

// close closes the link and waits for all goroutines. No call is in progress any more.
func (c *connector) close(ctx context.Context) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.link != nil {
		c.link.close(ctx)
		c.link = nil
	}
	c.tasks.Wait()
}
