package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// running is a dispatcher at work; it tells when something happened.
type running struct {
	t       testing.TB
	changed chan struct{}
	stop    func()
}

// Observe takes the dispatcher's events.
func (r *running) Observe(core.Event) {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// dispatch runs a dispatcher until the test ends.
func dispatch(t testing.TB, s core.Store, b core.Broker, change ...func(*core.Config)) *running {
	t.Helper()
	r := &running{t: t, changed: make(chan struct{}, 1)}
	cfg := core.Config{Logger: quiet(), Observer: r, PollMin: time.Millisecond, PollMax: 20 * time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	d, err := core.NewDispatcher(s, b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("dispatcher: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// await returns when the condition holds; it is looked at whenever the dispatcher did something.
func (r *running) await(what string, condition func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for !condition() {
		select {
		case <-r.changed:
		case <-ctx.Done():
			r.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// fetches lets the dispatcher poll so many times.
func (r *running) fetches(n int) {
	r.t.Helper()
	for range n {
		select {
		case <-r.changed:
		case <-time.After(time.Minute):
			r.t.Fatal("the dispatcher stands still")
		}
	}
}

// delivered are the event ids at the broker, in order.
func delivered(b *membroker.Broker) (ids []string) {
	for _, m := range b.Messages("order") {
		ids = append(ids, m.EventID)
	}
	return ids
}
