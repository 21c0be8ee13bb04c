package core_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// withFingerprint is a broker that tells its ordering strategy.
type withFingerprint struct {
	*membroker.Broker
	of func(destination string) string
}

func (b withFingerprint) Fingerprint(_ context.Context, _, destination string) (string, error) {
	return b.of(destination), nil
}

func TestDispatcher_RefusesATopicWithAnotherStrategy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		if _, err := s.store.Fingerprint(t.Context(), "", "bills", "shards/v1:64:g1"); err != nil {
			t.Fatal(err)
		}
		broker := withFingerprint{s.broker, func(string) string { return "shards/v1:128:g1" }}
		d, err := core.NewDispatcher(s.store, broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		s.enqueue("bills", 20, 5)
		s.enqueue("orders", 20, 5)
		wait(time.Minute)
		s.delivered("orders")
		if n := len(s.broker.Messages("bills")); n != 0 {
			t.Errorf("%d messages went to a topic that was published with another strategy", n)
		}
		h := d.Health()
		for _, part := range []string{`destination "bills"`, "shards/v1:64:g1", "shards/v1:128:g1", "accept"} {
			if !strings.Contains(h.Reason, part) {
				t.Errorf("%q is not in the reason: %s", part, h.Reason)
			}
		}
		if err := s.store.AcceptFingerprint(t.Context(), "", "bills", "shards/v1:128:g1"); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		s.delivered("bills")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A destination that changes under a running dispatcher, as a topic does that gets more partitions, is paused within
// a minute or so.
func TestDispatcher_NoticesAChangeOfTheDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		partitions := make(chan string, 1)
		partitions <- "record-key/v1:murmur2 of 3"
		broker := withFingerprint{s.broker, func(string) string {
			p := <-partitions
			partitions <- p
			return p
		}}
		d, err := core.NewDispatcher(s.store, broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		s.enqueue("orders", 10, 5)
		wait(time.Second)
		s.delivered("orders")
		<-partitions
		partitions <- "record-key/v1:murmur2 of 6"
		wait(2 * time.Minute)
		s.enqueue("orders", 10, 5) // goes out while the comparison runs, as those just before it did
		wait(time.Second)
		s.enqueue("orders", 10, 5)
		wait(time.Minute)
		if h := d.Health(); !strings.Contains(h.Reason, "of 6") {
			t.Errorf("health %+v", h)
		}
		if n := len(s.broker.Messages("orders")); n > 20 {
			t.Errorf("%d messages", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
