package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
)

// stream publishes messages over one channel: one goroutine writes, as writes may hang, the other reads confirms.
type stream struct {
	*call
	link     *link
	channel  *channel
	places   []int
	returned map[string]amqp.Return // by message id

	mu      sync.Mutex
	started int   // messages that were sent, the last of them perhaps in part
	stopped bool  // no other may be started
	err     error // why the writer has ended before the last
}

func newStream(c *call, l *link, ch *channel, places []int) *stream {
	return &stream{call: c, link: l, channel: ch, places: places, returned: map[string]amqp.Return{}}
}

// run writes the results of all places. It returns those that are in doubt because of one of them.
func (s *stream) run(ctx context.Context) (doubtful []int) {
	// The confirms of messages that were sent wait here for their turn, and when it is full the writer waits: the
	// window.
	confirms := make(chan *amqp.DeferredConfirmation, s.config.Window)
	written := make(chan struct{})
	s.link.tasks.Go(func() {
		defer close(written)
		defer close(confirms)
		s.write(ctx, confirms)
	})
	next, unconfirmed := 0, []int(nil)
	for confirm := range receiveUntil(ctx, confirms) {
		select {
		case <-confirm.Done():
		case <-ctx.Done():
		}
		if !s.settle(s.places[next], confirm) {
			unconfirmed = append(unconfirmed, s.places[next])
		}
		next++
	}
	sent := s.stop()
	s.awaitWriter(ctx, written)
	for ; next < sent; next++ {
		unconfirmed = append(unconfirmed, s.places[next])
	}
	return s.finish(ctx, unconfirmed, s.places[sent:])
}

// receiveUntil yields what comes through a channel until it is closed or ctx ends.
func receiveUntil[V any](ctx context.Context, values <-chan V) func(func(V) bool) {
	return func(yield func(V) bool) {
		for {
			select {
			case v, ok := <-values:
				if !ok || !yield(v) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// write sends the messages, until something is in the way.
func (s *stream) write(ctx context.Context, confirms chan<- *amqp.DeferredConfirmation) {
	for _, i := range s.places {
		if err := s.link.blockedErr(); err != nil {
			s.fail(err)
			return
		}
		if !s.start() {
			return
		}
		m := s.messages[i]
		confirm, err := s.channel.PublishWithDeferredConfirm(m.exchange, m.token, true, false, m.message)
		if err != nil {
			s.fail(err)
			return
		}
		select {
		case confirms <- confirm:
		case <-ctx.Done():
			return
		}
	}
}

// start counts a message that is about to be sent, unless the call has ended.
func (s *stream) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.started++
	return true
}

// stop lets no other message start and returns how many have.
func (s *stream) stop() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return s.started
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// awaitWriter waits for the writer, which hangs only when the server does not read: then the connection is cut, as the
// message that it writes is the caller's again after the call.
func (s *stream) awaitWriter(ctx context.Context, written chan struct{}) {
	select {
	case <-written:
		return
	case <-ctx.Done(): // no reason to end it before
	}
	for range 2 {
		select {
		case <-written:
			return
		case <-time.After(graceful / 4):
			s.link.kill()
		}
	}
	if s.link.raw != nil {
		<-written // a cut connection ends every write; a caller's connection may be beyond our reach
	}
}

// settle writes the result of a message that was confirmed, and reports whether it was.
func (s *stream) settle(place int, confirm *amqp.DeferredConfirmation) bool {
	if !isDone(confirm.Done()) {
		return false
	}
	m := s.messages[place]
	// What the server returns comes before its confirm.
	s.readReturns()
	r, returned := s.returned[m.message.MessageId]
	switch {
	// The library takes all that is unconfirmed when a channel closes for refused. The channel is marked as closed
	// first.
	case !confirm.Acked() && s.channel.IsClosed():
		return false
	case !confirm.Acked():
		// Another queue may have taken it, so that it is not certain that it is stored nowhere.
		s.abandon([]int{place}, core.OutcomeUnknown, fmt.Errorf("event %q: %w", m.message.MessageId, errNack))
	case returned && s.accepts(m.exchange):
		s.Broker.returned.Add(1)
		s.results[place] = core.Result{Outcome: core.OutcomeDelivered}
	case returned:
		s.abandon([]int{place}, core.OutcomeRejected, fmt.Errorf("event %q: %w", m.message.MessageId,
			&returnedError{r.ReplyCode, r.ReplyText, m.exchange, m.token}))
	default:
		s.results[place] = core.Result{Outcome: core.OutcomeDelivered}
	}
	return true
}

func (s *stream) readReturns() {
	for {
		select {
		case r, ok := <-s.channel.returns:
			if !ok {
				return
			}
			r.Body = nil
			s.returned[r.MessageId] = r
		default:
			return
		}
	}
}

// finish writes the results of what has no confirm, and gives the channel back or ends it.
func (s *stream) finish(ctx context.Context, unconfirmed, unsent []int) (doubtful []int) {
	if len(unconfirmed) == 0 && !s.channel.IsClosed() {
		s.link.release(s.channel)
	} else {
		s.link.discard(s.channel)
	}
	if len(unconfirmed)+len(unsent) == 0 {
		return nil
	}
	err := s.cause(ctx)
	v := classify(err)
	if v.scope == core.ScopeDestination {
		s.link.forget(s.messages[0].exchange)
	}
	switch {
	case v.isolate && len(s.places) > 1:
		return append(unconfirmed, unsent...)
	case v.isolate: // alone, so it is the one that the server does not take
		s.abandon(unconfirmed, core.OutcomeRejected, err)
	default:
		s.abandon(unconfirmed, core.OutcomeUnknown, err)
	}
	s.abandonUnsent(unsent, core.OutcomeSkipped, err)
	return nil
}

// cause is why messages have no confirm.
func (s *stream) cause(ctx context.Context) error {
	if s.channel.IsClosed() {
		select {
		case reply := <-s.channel.closes: // closed with the channel, after the reason was sent
			if reply != nil {
				return reply
			}
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	switch blocked := s.link.blockedErr(); {
	case blocked != nil:
		return blocked
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	default:
		return errUnconfirmed
	}
}
