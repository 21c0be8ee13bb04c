package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// graceful is how long the server may take to answer the end of a channel or connection before the connection is cut.
const graceful = time.Second

// link is one connection with its channels.
type link struct {
	conn  *amqp.Connection
	raw   net.Conn // nil for a caller's connection
	log   *slog.Logger
	tasks *sync.WaitGroup // goroutines, which end with the connection at the latest

	mu     sync.Mutex
	alarm  *alarm
	free   []*channel             // open, in confirm mode, nothing unconfirmed
	known  map[string]bool        // exchanges that exist
	ending map[chan struct{}]bool // closed when something that a call has left has ended
}

// alarm is what makes the server take no messages, now or the next time.
type alarm struct {
	raised chan struct{} // closed when it has begun
	err    blockedError  // written before
}

func newLink(conn *amqp.Connection, raw net.Conn, tasks *sync.WaitGroup, log *slog.Logger) *link {
	l := &link{
		conn: conn, raw: raw, tasks: tasks, log: log, known: map[string]bool{}, ending: map[chan struct{}]bool{},
		alarm: &alarm{raised: make(chan struct{})},
	}
	notices := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	l.tasks.Go(func() {
		for b := range notices { // until the connection is closed
			l.notice(b)
		}
	})
	return l
}

// notice keeps what the server says about taking messages.
func (l *link) notice(b amqp.Blocking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch raised := isDone(l.alarm.raised); {
	case b.Active && !raised:
		l.alarm.err.reason = b.Reason
		close(l.alarm.raised)
		l.log.Warn("rabbitmq: the server blocks publishers until an alarm ends", "reason", b.Reason)
	case !b.Active && raised:
		l.alarm = &alarm{raised: make(chan struct{})}
		l.log.Info("rabbitmq: the server takes messages again")
	}
}

// currentAlarm returns the alarm that is, or will be.
func (l *link) currentAlarm() *alarm {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alarm
}

// blockedErr is a *blockedError while the server takes no messages.
func (l *link) blockedErr() error {
	if a := l.currentAlarm(); isDone(a.raised) {
		return &a.err
	}
	return nil
}

func (l *link) frameMax() int {
	if n := l.conn.Config.FrameSize; n > 0 {
		return n
	}
	return maxFrameMax // the server has no limit
}

// kill cuts the connection: everything on it returns, and nothing that is unsent is sent.
func (l *link) kill() {
	if l.raw != nil {
		_ = l.raw.Close()
		return
	}
	_ = l.conn.CloseDeadline(time.Now()) // it is of no use any more
}

// close ends the connection: in order when the server answers, at once when ctx has ended. A caller's connection stays
// open, without our channels.
func (l *link) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, graceful)
	defer cancel()
	if l.raw == nil {
		_ = l.settled(ctx) // what is left ends with the connection
		for ch := l.pop(); ch != nil; ch = l.pop() {
			_ = l.do(ctx, "the end of a channel", ch.Close)
		}
		return
	}
	if l.blockedErr() != nil { // it would not be answered
		cancel()
	}
	stop := context.AfterFunc(ctx, l.kill)
	_ = l.conn.Close() // lost already, or cut by us
	if stop() {
		l.kill()
	}
}

// do runs calls of the client library, which know no context. They are left to end when ctx ends first, or when the
// server begins to block publishers, whom it does not answer then.
func (l *link) do(ctx context.Context, what string, f func() error) error {
	var err error
	done, alarm := make(chan struct{}), l.currentAlarm()
	l.tasks.Go(func() {
		defer close(done)
		err = f()
	})
	select {
	case <-done:
		return err
	case <-ctx.Done():
		l.leave(what, done)
		return ctx.Err()
	case <-alarm.raised:
		l.leave(what, done)
		return &alarm.err
	}
}

// leave lets something end without its call. The next call waits for that, so that nothing is stored behind its back.
// What does not end soon is ended with the connection; not while the server blocks publishers, as it does not read the
// end of the connection either.
func (l *link) leave(what string, done chan struct{}) {
	l.mu.Lock()
	l.ending[done] = true
	l.mu.Unlock()
	l.tasks.Go(func() {
		defer func() {
			l.mu.Lock()
			delete(l.ending, done)
			l.mu.Unlock()
		}()
		select {
		case <-done:
			return
		case <-time.After(graceful):
		}
		if l.blockedErr() == nil {
			l.log.Warn("rabbitmq: the server does not answer, the connection is cut", "waiting_for", what)
			l.kill()
		}
		<-done
	})
}

// settled waits until everything that calls have left has ended.
func (l *link) settled(ctx context.Context) error {
	l.mu.Lock()
	ending := slices.Collect(maps.Keys(l.ending))
	l.mu.Unlock()
	for _, done := range ending {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// withChannel runs f with a channel of its own, so that an error that closes it harms nothing else.
func (l *link) withChannel(ctx context.Context, f func(*amqp.Channel) error) error {
	return l.do(ctx, "an answer", func() error {
		ch, err := l.conn.Channel()
		if err != nil {
			return err
		}
		err = f(ch)
		return errors.Join(err, ignoreClosed(ch.Close()))
	})
}

func ignoreClosed(err error) error {
	if errors.Is(err, amqp.ErrClosed) {
		return nil
	}
	return err
}

// find makes sure that an exchange exists: publishing to one that does not closes the channel, and leaves all that is
// unconfirmed on it in doubt.
func (l *link) find(ctx context.Context, exchange string) error {
	l.mu.Lock()
	known := l.known[exchange]
	l.mu.Unlock()
	if known {
		return nil
	}
	err := l.withChannel(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(exchange, amqp.ExchangeDirect, true, false, false, false, nil)
	})
	if err == nil {
		l.mu.Lock()
		l.known[exchange] = true
		l.mu.Unlock()
	}
	return err
}

// forget lets the next call look for the exchange again.
func (l *link) forget(exchange string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, exchange)
}
