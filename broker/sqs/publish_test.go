package sqs_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

func TestReplyIsReadToTheEnd(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	records := spread(5)
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		if r.Action != "SendMessageBatch" || r.N > 1 {
			return sqsfake.Fault{}
		}
		return sqsfake.Fault{Omit: []int{1}, BadChecksum: []int{3}}
	})
	results := publish(t, broker, records...)
	if got, want := outcomes(results), "delivered unknown delivered unknown delivered"; got != want {
		t.Errorf("outcomes %s, want %s", got, want)
	}
	wantError(t, results[1], core.ClassTransient, core.ScopeMessage, core.OutcomeUnknown)
	wantError(t, results[3], core.ClassTransient, core.ScopeMessage, core.OutcomeUnknown)
	deliver(t, broker, records[1], records[3])
	wantSame(t, "stored", eventIDs(t, fake, "orders.fifo"), idsOf(records...))
}

func TestRefusedRequestIsSplit(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	records := append(spread(9), oneKey("key-3", 1)...)
	poison := records[3].EventID
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		for _, e := range r.Entries {
			if e.DeduplicationID == poison {
				return sqsfake.Fault{Error: sqsfake.Invalid("one of them is wrong")}
			}
		}
		return sqsfake.Fault{}
	})
	for i, r := range publish(t, broker, records...) {
		switch i {
		case 3:
			wantError(t, r, core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected)
		case 9:
			wantError(t, r, core.ClassTransient, core.ScopeKey, core.OutcomeSkipped)
		default:
			if r.Outcome != core.OutcomeDelivered {
				t.Errorf("record %d: %v: %v", i, r.Outcome, r.Err)
			}
		}
	}
}

func TestRefusedRunIsSplit(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	config := configOf(fake.URL())
	config.GroupRuns = true
	broker := open(t, config)
	g, h := oneKey("G", 6), oneKey("H", 2)
	poison := g[1].EventID
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		for _, e := range r.Entries {
			if e.DeduplicationID == poison {
				return sqsfake.Fault{Error: sqsfake.Invalid("one of them is wrong")}
			}
		}
		return sqsfake.Fault{}
	})
	results := publish(t, broker, append(g, h...)...)
	want := "delivered rejected skipped skipped skipped skipped delivered delivered"
	if got := outcomes(results); got != want {
		t.Errorf("outcomes %s, want %s", got, want)
	}
	wantOrder(t, fake, h)
	wantSame(t, "stored", eventIDs(t, fake, "orders.fifo"), idsOf(g[0], h[0], h[1]))
}

func TestRaisedLimit(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{MaxMessageBytes: 10_000})
	createQueue(t, fake, "orders.fifo", nil)
	log := &logBuffer{}
	config := configOf(fake.URL())
	config.Logger = slog.New(slog.NewTextHandler(log, nil))
	broker := open(t, config)
	first := oneKey("first", 1)[0]
	deliver(t, broker, first)
	fake.DeleteQueue("orders.fifo")
	createQueue(t, fake, "orders.fifo", map[string]string{"MaximumMessageSize": "30000"})
	large := oneKey("k", 1)[0]
	large.Payload = []byte(strings.Repeat("x", 20_000))
	deliver(t, broker, large)

	fake.DeleteQueue("orders.fifo") // what was sent before the limit was read again is not forgotten
	publish(t, broker, oneKey("k", 1)...)
	for _, id := range idsOf(first, large) {
		if !strings.Contains(log.String(), id) {
			t.Errorf("event %s is not named in the log:\n%s", id, log)
		}
	}
}

func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	deliver(t, broker, oneKey("first", 1)...)
	fake.DeleteQueue("orders.fifo")
	createQueue(t, fake, "orders.fifo", map[string]string{"MaximumMessageSize": "20000"})
	records := spread(10)
	for _, r := range records {
		r.Payload = []byte(strings.Repeat("x", 6000))
	}
	deliver(t, broker, records...)
}

func TestGroupRuns(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	config := configOf(fake.URL())
	config.GroupRuns = true
	broker := open(t, config)
	records := oneKey("busy", 35)
	deliver(t, broker, records...)
	wantOrder(t, fake, records)
	if n := fake.Count("SendMessageBatch"); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

func TestCallOutOfTime(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	records := oneKey("busy", 50)
	deliver(t, broker, oneKey("first", 1)...)
	fake.SetLatency(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	results := broker.PublishBatch(ctx, prepare(t, broker, records...))
	for i, r := range results {
		switch r.Outcome {
		case core.OutcomeDelivered:
		case core.OutcomeSkipped:
			wantError(t, r, core.ClassTransient, core.ScopeKey, core.OutcomeSkipped)
		default:
			t.Errorf("record %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
	if results[49].Outcome != core.OutcomeSkipped {
		t.Errorf("50 round trips of 50 ms in half of 3 s: %s", outcomes(results))
	}
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}
