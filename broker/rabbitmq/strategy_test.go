package rabbitmq_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/ordering"
)

// The fingerprint names everything that decides to which shard an aggregate goes.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		strategy ordering.Strategy
		want     string
	}{
		{nil, "shards/v1:256:g1"},
		{ordering.Shards{Count: 64}, "shards/v1:64:g1"},
		{ordering.Shards{Count: 64, Generation: 3}, "shards/v1:64:g3"},
		{ordering.None{}, "none/v1"},
	} {
		b := open(t, rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}, Strategy: c.strategy})
		if got, err := b.Fingerprint(t.Context(), "", "orders"); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.strategy, got, err, c.want)
		}
	}
}

// A topic goes over to later generations of shards, and to nothing else; other topics stay as they are.
func TestAdopt(t *testing.T) {
	t.Parallel()
	b := open(t, rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}, Strategy: ordering.Shards{Count: 16, Generation: 2}})
	generation := func(topic string) string {
		t.Helper()
		p, err := b.Prepare(brokertest.NewRecord(topic, "a", 1))
		if err != nil {
			t.Fatal(err)
		}
		generation, _, _ := strings.Cut(rabbitmq.TokenOf(p), ".")
		return generation
	}
	for _, c := range []struct {
		fingerprint string
		adopts      bool
		want        string
	}{
		{"shards/v1:16:g1", false, "2"},
		{"shards/v1:32:g2", false, "2"},
		{"none/v1", false, "2"},
		{"switching: shards/v1:16:g2 -> shards/v1:32:g3", false, "2"},
		{"shards/v1:32:g3 or so", false, "2"},
		{"shards/v1:032:g3", false, "2"},
		{"shards/v1:0:g3", false, "2"},
		{"shards/v1:99999999:g3", false, "2"},
		{"shards/v1:32:g5", true, "5"},
		{"shards/v1:16:g4", false, "5"},
		{"shards/v1:32:g5", false, "5"},
		{"shards/v1:64:g6", true, "6"},
	} {
		got, err := b.Adopt(t.Context(), "", "orders", c.fingerprint)
		if err != nil || got != c.adopts || generation("orders") != c.want {
			t.Errorf("%s: %t, %v, generation %s; want %t, %s", c.fingerprint, got, err, generation("orders"), c.adopts, c.want)
		}
	}
	if got, err := b.Fingerprint(t.Context(), "", "orders"); err != nil || got != "shards/v1:64:g6" {
		t.Errorf("fingerprint %q, %v", got, err)
	}
	if got := generation("bills"); got != "2" {
		t.Errorf("another topic has gone over to generation %s", got)
	}
	unordered := open(t, rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}, Strategy: ordering.None{}})
	if got, err := unordered.Adopt(t.Context(), "", "orders", "shards/v1:16:g2"); got || err != nil {
		t.Errorf("without order: %t, %v", got, err)
	}
}

// Going over is safe while other goroutines prepare.
func TestAdoptWhilePreparing(t *testing.T) {
	t.Parallel()
	b := open(t, rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}})
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			for generation := 2; generation < 50; generation++ {
				if i == 0 {
					_, _ = b.Adopt(t.Context(), "", "orders", fmt.Sprintf("shards/v1:16:g%d", generation))
				}
				prepare(t, b, brokertest.NewRecord("orders", "a", 1))
			}
		})
	}
	running.Wait()
}
