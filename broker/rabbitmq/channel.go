package rabbitmq

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"
)

// channel is one in confirm mode, used by one call at a time.
type channel struct {
	*amqp.Channel
	returns chan amqp.Return
	closes  chan *amqp.Error
}

// take returns a channel that nobody else uses. Up to window messages may be unconfirmed on it.
func (l *link) take(ctx context.Context, window int) (*channel, error) {
	for {
		if ch := l.pop(); ch != nil {
			return ch, nil
		}
		err := l.do(ctx, "a channel", func() error {
			ch, err := l.open(window)
			if err == nil {
				l.release(ch)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
}

func (l *link) pop() *channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.free); n > 0; n = len(l.free) {
		ch := l.free[n-1]
		l.free = l.free[:n-1]
		if !ch.IsClosed() {
			return ch
		}
	}
	return nil
}

func (l *link) release(ch *channel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, ch)
}

func (l *link) open(window int) (*channel, error) {
	raw, err := l.conn.Channel()
	if err != nil {
		return nil, err
	}
	ch := &channel{
		Channel: raw,
		// The library's reader waits when this is full, so it holds whatever can come before somebody looks.
		returns: raw.NotifyReturn(make(chan amqp.Return, window+2)),
		closes:  raw.NotifyClose(make(chan *amqp.Error, 1)),
	}
	if err := raw.Confirm(false); err != nil {
		return nil, errors.Join(err, ignoreClosed(raw.Close()))
	}
	return ch, nil
}

// discard ends a channel with unconfirmed messages. The server answers once it has dealt with all that came before, so
// that nothing of it is stored after the next call has begun.
func (l *link) discard(ch *channel) {
	if ch.IsClosed() {
		return
	}
	done := make(chan struct{})
	l.tasks.Go(func() {
		defer close(done)
		_ = ch.Close() // an error means that the connection is lost
	})
	l.leave("the end of a channel", done)
}
