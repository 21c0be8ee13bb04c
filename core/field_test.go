package core_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// The numbers are those of failures that users of other systems reported; each test states the right outcome.

// Publishes that hit their deadline leave nothing behind.
func TestField_037_DeadlinesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		calls := 0
		s := newSystem(t, memstore.Config{Lanes: 8}, membroker.Config{MaxInFlight: 4, Script: func(membroker.Call) membroker.Plan {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls%3 == 0 && calls < 60 {
				return membroker.Hang()
			}
			return membroker.Deliver()
		}})
		s.cfg.PublishTimeout = time.Second
		_, stop := s.start()
		for range 60 {
			s.enqueue("orders", 40, 20)
			wait(time.Second)
		}
		wait(core.DefaultLeaseTTL)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

// A settle that fails after the publish repeats with the same event id, and at most once a failure.
func TestField_045_ALostSettleAnswerRepeatsTheSettleNotThePublish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Fault: failTimes(memstore.OpSettle, 3)}, membroker.Config{})
		s.enqueue("orders", 100, 10)
		_, stop := s.start()
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

// A lane that goes to another replica while its records are being sent is handed over when they are settled.
func TestField_047_RebalancingWaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newSystem(t, memstore.Config{Lanes: 12}, membroker.Config{Script: membroker.Calls(membroker.Hold(release))})
		s.cfg.PublishTimeout = time.Minute
		s.enqueue("orders", 100, 100)
		_, stopA := s.start()
		wait(time.Second)
		b, stopB := s.start()
		wait(20 * time.Second)
		if n := len(s.broker.Messages("orders")); n != 0 {
			t.Errorf("the newcomer published %d records of lanes in flight elsewhere", n)
		}
		close(release)
		wait(20 * time.Second)
		if h := b.Health(); h.Lanes != 6 {
			t.Errorf("after the hand-over: %+v", h)
		}
		for _, stop := range []func() error{stopA, stopB} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

// A panic while 20 records are in flight delays them, and nothing is stuck with its owner.
func TestField_092_APanicDoesNotStrandRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.Calls(membroker.Panic("boom"))})
		s.enqueue("orders", 20, 20)
		d, stop := s.start()
		wait(core.DefaultLeaseTTL)
		s.delivered("orders")
		if h := d.Health(); !h.Ready || h.InFlight != 0 {
			t.Errorf("health %+v", h)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A backlog of large payloads is fetched within a bound of bytes.
func TestField_113_LargePayloadsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Discard: true, MaxMessageBytes: 8 << 20})
		s.cfg.FetchBytes, s.cfg.MaxInFlightBytes = 10_000, 30_000
		const size = 4000
		var most int
		s.cfg.Observer = observerFunc(func(e core.Event) {
			if f, ok := e.(core.FetchEvent); ok {
				most = max(most, f.Records)
			}
		})
		for range 200 {
			m := s.message("orders", "a0")
			m.Payload = make([]byte, size)
			s.commit(m)
		}
		huge := s.message("orders", "a1")
		huge.Payload = make([]byte, 5<<20)
		s.commit(huge)
		d, err := core.NewDispatcher(s.store, s.broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most > 10_000/size {
			t.Errorf("a fetch returned %d records of %d bytes", most, size)
		}
		if n := s.broker.Count(); n != 201 {
			t.Errorf("%d arrived", n)
		}
	})
}

// The wait never overflows, never shrinks before the cap and never exceeds it.
func TestField_117_BackoffIsMonotoneAndCapped(t *testing.T) {
	t.Parallel()
	for _, b := range []core.Backoff{
		{Initial: time.Second, Max: time.Hour, Multiplier: 2},
		{Initial: 1, Max: time.Hour, Multiplier: 2},
		{Initial: time.Second, Max: time.Second, Multiplier: 1},
		{Initial: time.Second, Max: math.MaxInt64, Multiplier: 1e300},
		{},
	} {
		last := time.Duration(0)
		check := func(n int) {
			ceiling, delay := b.Ceiling(n), b.Delay(n)
			if ceiling < last || ceiling > b.Max || delay < 0 || delay > ceiling {
				t.Fatalf("%+v after %d failures: ceiling %v after %v, delay %v", b, n, ceiling, last, delay)
			}
			last = ceiling
		}
		for n := range 10_000 {
			check(n)
		}
		check(math.MaxInt64)
	}
}

// One topic that does not exist holds up no other, and its name is in the reason.
func TestField_119_AMissingTopicIsNamedAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := membroker.NewServer("orders")
		s := newSystem(t, memstore.Config{}, membroker.Config{Server: server})
		s.enqueue("bills", 10, 5)
		s.enqueue("orders", 10, 5)
		d, stop := s.start()
		wait(time.Minute)
		s.delivered("orders")
		if h := d.Health(); !strings.Contains(h.Reason, `"bills"`) {
			t.Errorf("health %+v", h)
		}
		server.Create("bills")
		wait(time.Minute)
		s.delivered("bills")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// The error text kept with a row is short and valid, whatever the broker said.
func TestField_133_TheReasonIsShortAndValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := strings.Repeat("\x00'\"\xff😀", 5<<20/9)
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.Always(membroker.Reject(errors.New(said)))})
		s.cfg.Retry.MaxAttempts = 50
		s.enqueue("orders", 1, 1)
		_, stop := s.start()
		wait(2 * time.Hour)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		row, _ := s.store.Row("orders/a0/1")
		if row.State != memstore.Parked || row.Attempts != 50 {
			t.Errorf("state %s after %d attempts", row.State, row.Attempts)
		}
		if len(row.Reason) > 2000 || len(row.Reason) < 1900 || !utf8.ValidString(row.Reason) || strings.ContainsRune(row.Reason, 0) {
			t.Errorf("reason of %d bytes: %.60q", len(row.Reason), row.Reason)
		}
	})
}

// Generated ids do not collide, whatever the clock does: here it stands still.
func TestField_155_GeneratedIDsAreUnique(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const writers, each = 8, 50_000
		ids := make([][]string, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for range each {
					ids[w] = append(ids[w], core.NewEventID())
				}
			})
		}
		wg.Wait()
		seen := make(map[string]bool, writers*each)
		for _, some := range ids {
			for _, id := range some {
				if seen[id] || len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) {
					t.Fatalf("id %q, seen before: %v", id, seen[id])
				}
				seen[id] = true
			}
		}
	})
}

func TestMessage_ValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		change func(*core.Message)
		fields []string
	}{
		"good":        {func(*core.Message) {}, nil},
		"all limits":  {func(m *core.Message) { m.Topic, m.AggregateType, m.AggregateID = long(249), long(255), long(1024) }, nil},
		"empty":       {func(m *core.Message) { *m = core.Message{} }, []string{"AggregateType is required", "AggregateID is required", "EventType is required"}},
		"too long":    {func(m *core.Message) { m.EventID, m.AggregateID = long(129), long(1025) }, []string{"EventID has 129 bytes, the limit is 128", "AggregateID has 1025"}},
		"NUL":         {func(m *core.Message) { m.AggregateID = "a\x00" }, []string{"AggregateID contains a NUL"}},
		"not UTF-8":   {func(m *core.Message) { m.EventType = "\xe2\x28" }, []string{"EventType is not valid UTF-8"}},
		"bad headers": {func(m *core.Message) { m.Headers = map[string]string{"": "x", "event_id": "1", "k": "\xff"} }, []string{`Headers[""] has an empty name`, `Headers["event_id"] is a name`, `Headers["k"] value is not valid UTF-8`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := core.Message{AggregateType: "order", AggregateID: "1", EventType: "created"}
			c.change(&m)
			_, err := core.ValidateAll([]core.Message{{AggregateType: "t", AggregateID: "i", EventType: "e"}, m}, nil)
			if (err != nil) != (len(c.fields) > 0) {
				t.Fatalf("got %v", err)
			}
			for _, field := range c.fields {
				if !strings.Contains(err.Error(), field) {
					t.Errorf("%q is not in %v", field, err)
				}
			}
			var fault *core.InvalidMessageError
			if err != nil && (!errors.As(err, &fault) || fault.Index != 1) {
				t.Errorf("fault %+v", fault)
			}
		})
	}
}

func ExampleRecord_WireHeaders() {
	r := core.Record{ID: 7, Message: core.Message{
		EventID: "e1", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		Headers: map[string]string{"tenant": "t1", "schema_version": "2"},
	}}
	for name, value := range r.WireHeaders() {
		fmt.Println(name, "=", value)
	}
	// Output:
	// event_id = e1
	// outbox_id = 7
	// event_type = order.created
	// aggregate_type = order
	// aggregate_id = ord_1
	// schema_version = 2
	// tenant = t1
}
