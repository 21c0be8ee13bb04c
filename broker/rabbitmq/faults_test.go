package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

// The proxy of the tests may leave a goroutine behind when a slow connection is cut.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

// numbered returns records whose payload is their number.
func numbered(n int) []*core.Record {
	records := spread("orders", n)
	for i, r := range records {
		r.Payload = fmt.Append(nil, i)
	}
	return records
}

// Confirms for one message and for many, out of order, while others are being published.
func TestField_085_ConfirmsDuringPublishing(t *testing.T) {
	t.Parallel()
	var held []fakeMessage
	f := startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) {
		switch {
		case m.tag%100 == 0: // all until here, this one too
			c.ackUpTo(m)
			held = nil
		case m.tag%3 == 0: // this one, later than the next one
			held = append(held, m)
		case m.tag%3 == 1:
			c.ack(m)
			for _, m := range held {
				c.ack(m)
			}
			held = nil
		}
	}})
	config := f.config()
	config.Window, config.Channels = 100, 1
	b := open(t, config)
	records := numbered(1000)
	batch := prepare(t, b, records...)
	for range 20 {
		for i, r := range b.PublishBatch(t.Context(), batch) {
			if r.Outcome != core.OutcomeDelivered {
				t.Fatalf("message %d: %v: %v", i, r.Outcome, r.Err)
			}
		}
	}
}

// The connection dies after a message was sent: its outcome is unknown, at once, and the next call makes another one.
func TestField_086_ConnectionDiesBeforeTheConfirm(t *testing.T) {
	t.Parallel()
	died := false
	f := startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) {
		if !died {
			died = true
			_ = c.conn.Close()
			return
		}
		c.store(m)
		c.ack(m)
	}})
	b := open(t, f.config())
	records := numbered(1)
	wantError(t, publish(t, b, records...)[0],
		core.OutcomeUnknown, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST")
	deliver(t, b, records...)
	if n := f.connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	if got := f.bodies(); !slices.Equal(got, []string{"0"}) {
		t.Errorf("stored %q", got)
	}
}

// The server blocks publishers and stops to read: the call in progress ends with its context, later ones at once, and
// nothing counts as delivered without a confirm.
func TestField_087_Blocked(t *testing.T) {
	t.Parallel()
	alarm, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	f := startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) {
		if m.tag == 6 {
			c.block("low on memory")
			close(alarm)
			<-released
			c.unblock()
		}
		c.store(m)
		c.ack(m)
	}})
	config := f.config()
	config.Window = 10
	b := open(t, config)
	records := numbered(100)
	for _, r := range records { // more than socket buffers take
		r.Payload = append(r.Payload, strings.Repeat(" ", 1<<20)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	inProgress := make(chan []core.Result, 1)
	go func() { inProgress <- b.PublishBatch(ctx, prepare(t, b, records...)) }()
	<-alarm
	// The notice may come while Check waits for an answer, which ends it as well.
	waitFor(t, func() bool {
		err := b.Check(t.Context())
		return err != nil && strings.Contains(err.Error(), "low on memory")
	})
	wantError(t, publish(t, b, spread("orders", 1)...)[0],
		core.OutcomeSkipped, core.ClassThrottled, core.ScopeBroker, "BLOCKED")
	cancel()
	counts := map[core.Outcome]int{}
	for i, r := range <-inProgress {
		counts[r.Outcome]++
		if i < 5 != (r.Outcome == core.OutcomeDelivered) {
			t.Errorf("message %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
	if counts[core.OutcomeUnknown] == 0 || counts[core.OutcomeSkipped] == 0 {
		t.Errorf("outcomes %v", counts)
	}
	release()
	waitFor(t, func() bool { return b.Check(t.Context()) == nil })
	deliver(t, b, spread("orders", 1)...)
}

// While publishers are blocked, a call that was given up cannot be ended at the server. The next ones do not wait for that.
func TestField_087_BlockedAfterACallWasGivenUp(t *testing.T) {
	t.Parallel()
	alarm, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	f := startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) {
		if string(m.body) == "5" {
			c.block("low on memory")
			close(alarm)
			<-released
			c.unblock()
		}
		c.store(m)
		c.ack(m)
	}})
	b := open(t, f.config())
	records := numbered(20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make(chan []core.Result, 1)
	go func() { results <- b.PublishBatch(ctx, prepare(t, b, records...)) }()
	<-alarm
	waitFor(t, func() bool {
		err := b.Check(t.Context())
		return err != nil && strings.Contains(err.Error(), "low on memory")
	})
	cancel()
	<-results
	for range 3 {
		wantError(t, publish(t, b, numbered(1)...)[0],
			core.OutcomeSkipped, core.ClassThrottled, core.ScopeBroker, "BLOCKED")
	}
	release()
	waitFor(t, func() bool { return b.Check(t.Context()) == nil })
	deliver(t, b, numbered(1)...)
	if n := f.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A blocked broker can be closed in no time.
func TestField_087_CloseWhileBlocked(t *testing.T) {
	t.Parallel()
	alarm, released := make(chan struct{}), make(chan struct{})
	f := startFake(t, &fake{publish: func(c *fakeConn, _ fakeMessage) {
		c.block("low on disk")
		close(alarm)
		<-released
	}})
	defer close(released)
	b := open(t, f.config())
	results := make(chan []core.Result, 1)
	go func() { results <- b.PublishBatch(t.Context(), prepare(t, b, numbered(1)...)) }()
	<-alarm
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	if r := (<-results)[0]; r.Outcome != core.OutcomeUnknown {
		t.Errorf("the call in progress ended with %v: %v", r.Outcome, r.Err)
	}
}

// Close waits for confirms as long as its context allows: those that come count, the others are unknown.
func TestField_068_CloseWaitsForConfirms(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		arrived := make(chan func(), 10)
		f := startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) { arrived <- func() { c.ack(m) } }})
		b := open(t, f.config())
		results := make(chan []core.Result, 1)
		go func() { results <- b.PublishBatch(t.Context(), prepare(t, b, numbered(10)...)) }()
		var acks []func()
		for range 10 {
			acks = append(acks, <-arrived)
		}
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan error, 1)
		go func() { closed <- b.Close(ctx) }()
		want := core.OutcomeDelivered
		if late {
			want = core.OutcomeUnknown
			cancel()
		} else {
			for _, ack := range acks {
				ack()
			}
		}
		for i, r := range <-results {
			if r.Outcome != want {
				t.Errorf("late %t, message %d: %v: %v", late, i, r.Outcome, r.Err)
			}
		}
		if err := <-closed; (err != nil) != late {
			t.Errorf("late %t: Close: %v", late, err)
		}
		cancel()
	}
}

// Headers that do not fit into a frame of this server are one message's fault, found before anything is sent: also when
// the server's frames are smaller than was known when the message was prepared.
func TestField_147_HeadersLargerThanAFrame(t *testing.T) {
	t.Parallel()
	f := startFake(t, &fake{frameMax: 4096})
	b := open(t, f.config())
	records := numbered(21)
	records[10].Headers["large"] = strings.Repeat("x", 4100)
	for i, r := range publish(t, b, records...) {
		if i == 10 {
			wantError(t, r, core.OutcomeRejected, core.ClassPermanent, core.ScopeMessage, "HEADERS_TOO_LARGE")
		} else if r.Outcome != core.OutcomeDelivered {
			t.Errorf("message %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
	if _, err := b.Prepare(records[10]); err == nil {
		t.Error("Prepare accepts headers that are known to be too large")
	}
	if n := f.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// The headers that are just allowed are sent in one frame, for any frame size.
func TestField_147_HeadersAsLargeAsAFrame(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	for _, frameMax := range []int{4096, 1 << 16} {
		config := s.config(t)
		config.FrameMax = frameMax
		b := open(t, config)
		if err := b.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := brokertest.NewRecord(topic, "a", 1)
		r.CreatedAt = time.Time{} // the frame is smaller without it
		accepted := 0
		for size := frameMax - 1000; size < frameMax; size++ {
			r.Headers["large"] = strings.Repeat("x", size)
			if _, err := b.Prepare(r); err != nil {
				break
			}
			accepted = size
		}
		r.Headers["large"] = strings.Repeat("x", accepted)
		deliver(t, b, r)
		if accepted < frameMax-1000 || accepted > frameMax-200 {
			t.Errorf("frames of %d: headers of up to %d bytes are accepted", frameMax, accepted)
		}
	}
}

// An exchange that reports messages as unroutable although it delivers them later.
func TestField_177_AcceptUnroutable(t *testing.T) {
	t.Parallel()
	f := startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) {
		c.store(m)
		c.giveBack(m)
		c.ack(m)
	}})
	config := f.config()
	wantError(t, publish(t, open(t, config), numbered(1)...)[0],
		core.OutcomeRejected, core.ClassMisconfigured, core.ScopeDestination, "NO_ROUTE")
	config.AcceptUnroutable = []string{"orders"}
	b := open(t, config)
	deliver(t, b, numbered(3)...)
	if n := b.Returned(); n != 3 {
		t.Errorf("%d counted as returned, want 3", n)
	}
	if n := len(f.bodies()); n != 4 {
		t.Errorf("%d sent, want 4", n)
	}
}

// A message that the server does not take closes the channel: it alone is refused, its neighbours are delivered.
func TestPoisonIsIsolated(t *testing.T) {
	t.Parallel()
	var f *fake
	f = startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) {
		if string(m.body) == "3" {
			c.closeChannel(m.channel, 406, "PRECONDITION_FAILED - this one is poison")
			return
		}
		if c.store(m); m.tag == 1 || len(f.bodies()) > 3 { // other confirms are late until then
			c.ack(m)
		}
	}})
	b := open(t, f.config())
	records := numbered(6)
	for i, r := range publish(t, b, records...) {
		if i == 3 {
			wantError(t, r, core.OutcomeRejected, core.ClassPermanent, core.ScopeMessage, "PRECONDITION_FAILED")
		} else if r.Outcome != core.OutcomeDelivered {
			t.Errorf("message %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
	for i := range 6 {
		if n := slices.Contains(f.bodies(), fmt.Sprint(i)); n != (i != 3) {
			t.Errorf("message %d stored: %t", i, n)
		}
	}
}

// What a call has left unconfirmed is the server's until it has answered the end of the channel: the next call sends
// nothing before that, and a confirm that comes meanwhile is nobody's.
func TestNextCallWaitsForTheEndOfTheOneBefore(t *testing.T) {
	t.Parallel()
	arrived, next := make(chan fakeMessage), make(chan fakeMessage, 1)
	answered := make(chan bool, 1)
	var answering sync.WaitGroup
	f := startFake(t, &fake{
		publish: func(c *fakeConn, m fakeMessage) {
			if string(m.body) == "0" {
				arrived <- m
				return
			}
			next <- m
			c.confirm(m, 120, 0) // refused
		},
		closing: func(c *fakeConn, channel uint16, answer func()) {
			answering.Go(func() {
				select { // reading goes on meanwhile
				case <-next:
					answered <- false
				case <-time.After(100 * time.Millisecond):
					c.ack(fakeMessage{channel: channel, tag: 1})
					answer()
					answered <- true
				}
			})
		},
	})
	b := open(t, f.config())
	records := numbered(2)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan []core.Result, 1)
	go func() { results <- b.PublishBatch(ctx, prepare(t, b, records[0])) }()
	<-arrived
	cancel()
	wantError(t, (<-results)[0], core.OutcomeUnknown, core.ClassUnavailable, core.ScopeDestination, "CANCELED")
	wantError(t, publish(t, b, records[1])[0], core.OutcomeUnknown, core.ClassThrottled, core.ScopeKey, "NACK")
	select {
	case inTime := <-answered:
		if !inTime {
			t.Error("the next call has sent its message before the end of the channel was answered")
		}
	default:
		t.Error("the channel was not ended")
	}
	answering.Wait()
	if n := f.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// waitFor waits for what another goroutine brings about.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it does not happen")
		}
	}
}
