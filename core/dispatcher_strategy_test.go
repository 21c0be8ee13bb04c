package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
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
// the time of a lease.
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

// adopting is a broker that goes over to every strategy whose fingerprint begins with "g", and that checks what a
// dispatcher may rely on then. Its calls take time.
type adopting struct {
	*membroker.Broker
	t       *testing.T
	prepare time.Duration // how long Prepare takes at most
	publish time.Duration // how long a call takes at most

	mu       sync.Mutex
	random   *rand.Rand
	current  map[string]string                 // by destination
	prepared map[*core.Record]string           // by which strategy
	calls    map[string]int                    // under way, by destination
	begun    map[string]map[string][]time.Time // calls by destination and strategy
	adoptErr error
}

func newAdopting(t *testing.T, server *membroker.Server, seed uint64) *adopting {
	t.Helper()
	return &adopting{
		Broker: membroker.New(membroker.Config{Server: server, MaxInFlight: 3}), t: t,
		random:  rand.New(rand.NewPCG(seed, 0)),
		current: map[string]string{}, prepared: map[*core.Record]string{}, calls: map[string]int{},
		begun: map[string]map[string][]time.Time{},
	}
}

func (b *adopting) strategyOf(destination string) string {
	if s, ok := b.current[destination]; ok {
		return s
	}
	return "g1"
}

func (b *adopting) Fingerprint(_ context.Context, _, destination string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.strategyOf(destination), nil
}

func (b *adopting) Adopt(_ context.Context, _, destination, fingerprint string) (bool, error) {
	b.mu.Lock()
	if n := b.calls[destination]; n > 0 {
		b.t.Errorf("%s goes over to %s while %d calls are under way", destination, fingerprint, n)
	}
	b.mu.Unlock()
	b.pause(b.publish)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.adoptErr != nil || !strings.HasPrefix(fingerprint, "g") {
		return false, b.adoptErr
	}
	b.current[destination] = fingerprint
	return true, nil
}

func (b *adopting) Prepare(r *core.Record) (core.Prepared, error) {
	b.mu.Lock()
	b.prepared[r] = b.strategyOf(r.Topic)
	b.mu.Unlock()
	b.pause(b.prepare)
	return b.Broker.Prepare(r)
}

func (b *adopting) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	destination := batch[0].Destination
	b.mu.Lock()
	now := b.strategyOf(destination)
	for _, p := range batch {
		if by := b.prepared[p.Record]; by != now {
			b.t.Errorf("%s was prepared by %s and is published by %s", p.Record.EventID, by, now)
		}
	}
	b.calls[destination]++
	if b.begun[destination] == nil {
		b.begun[destination] = map[string][]time.Time{}
	}
	b.begun[destination][now] = append(b.begun[destination][now], time.Now())
	b.mu.Unlock()
	b.pause(b.publish)
	results := b.Broker.PublishBatch(ctx, batch)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[destination]--
	return results
}

// pause lets virtual time pass, up to most.
func (b *adopting) pause(most time.Duration) {
	if most > 0 {
		b.mu.Lock()
		d := time.Duration(b.random.Int64N(int64(most)))
		b.mu.Unlock()
		pass(d)
	}
}

// lastBegun is when the last call to the destination began that published by the strategy.
func (b *adopting) lastBegun(destination, strategy string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last time.Time
	for _, at := range b.begun[destination][strategy] {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// run runs a dispatcher over the broker, until stop is called.
func (s *system) run(store core.Store, b core.Broker) (d *core.Dispatcher, stop func() error) {
	s.t.Helper()
	d, err := core.NewDispatcher(store, b, s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	result := make(chan error, 1)
	s.wg.Go(func() { result <- d.Run(ctx) })
	return d, func() error {
		cancel()
		return <-result
	}
}

func (s *system) accept(topic, fingerprint string) {
	s.t.Helper()
	if err := s.store.AcceptFingerprint(s.t.Context(), "", topic, fingerprint); err != nil {
		s.t.Fatal(err)
	}
}

// unharmed checks that everything was published, and that no event was charged for it.
func (s *system) unharmed() {
	s.t.Helper()
	for _, row := range s.store.Rows() {
		if row.State != memstore.Published || row.Attempts != 0 {
			s.t.Fatalf("%s: state %s, %d attempts", row.EventID, row.State, row.Attempts)
		}
	}
}

// A change of strategy by one row: while it says "switching" all dispatchers hold the topic, and within a lease and a
// publish timeout nobody publishes to it; when it says the new strategy all go on with that, without a restart.
func TestDispatcher_GoesOverToTheStrategyThatTheStoreHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 8}, membroker.Config{})
		var text lockedText
		s.cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		s.cfg.LeaseTTL, s.cfg.PublishTimeout = 6*time.Second, 4*time.Second
		var brokers []*adopting
		var dispatchers []*core.Dispatcher
		var stops []func() error
		for i := range 2 {
			b := newAdopting(t, s.broker.Server(), uint64(i))
			b.publish, b.prepare = 200*time.Millisecond, time.Millisecond
			d, stop := s.run(s.store.Replica(), b)
			brokers, dispatchers, stops = append(brokers, b), append(dispatchers, d), append(stops, stop)
		}
		flow := func(d time.Duration) { // each time an event of every key, so that every dispatcher has something to publish
			for end := time.Now().Add(d); time.Now().Before(end); wait(500 * time.Millisecond) {
				s.enqueue("orders", 20, 20)
				s.enqueue("bills", 20, 20)
			}
		}
		flow(10 * time.Second)
		began := time.Now()
		s.accept("orders", core.Switching{From: "g1", To: "g2"}.String())
		flow(2*s.cfg.LeaseTTL + s.cfg.PublishTimeout)
		for i, b := range brokers {
			if last := b.lastBegun("orders", "g1").Sub(began); last >= s.cfg.LeaseTTL || last < 0 {
				t.Errorf("dispatcher %d published for %v after the row was set", i, last)
			}
			if last := time.Since(b.lastBegun("bills", "g1")); last > time.Second {
				t.Errorf("dispatcher %d has not published to another topic for %v", i, last)
			}
			h := dispatchers[i].Health()
			if !h.Ready || !strings.Contains(h.Reason, "resharding in progress") || strings.Contains(h.Reason, "accept the new") {
				t.Errorf("health while the topic is switched: %+v", h)
			}
		}
		s.accept("orders", "g2")
		flow(30 * time.Second)
		for i, b := range brokers {
			if time.Since(b.lastBegun("orders", "g2")) > time.Second {
				t.Errorf("dispatcher %d has not gone over", i)
			}
		}
		wait(time.Minute)
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		if repeats := s.delivered("orders") + s.delivered("bills"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
		s.unharmed()
		if !strings.Contains(text.String(), `goes over to the ordering strategy that the store has" outbox=outbox`) {
			t.Errorf("the log does not tell:\n%s", text.String())
		}
	})
}

type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedText) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedText) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// However the row changes, and whatever is in memory, being fetched or being published just then: nothing prepared
// before a broker went over is published after it, and it goes over only while nothing is published. (The broker here
// checks both.)
func TestDispatcher_PreparesAnewAfterGoingOver(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				s := newSystem(t, memstore.Config{Lanes: 32}, membroker.Config{})
				s.cfg.LeaseTTL, s.cfg.PublishTimeout = time.Second, time.Second
				s.cfg.FetchSize = 20
				b := newAdopting(t, s.broker.Server(), seed)
				b.prepare, b.publish = 50*time.Millisecond, 900*time.Millisecond
				_, stop := s.run(s.store, b)
				for generation := 2; generation < 10; generation++ {
					for end := time.Now().Add(time.Duration(random.Int64N(int64(2 * time.Second)))); time.Now().Before(end); {
						s.commit(s.message("orders", fmt.Sprint("a", random.IntN(40))), s.message("orders", fmt.Sprint("b", random.IntN(40))))
						s.enqueue("bills", random.IntN(3), 7)
						wait(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
					}
					if random.IntN(2) == 0 {
						s.accept("orders", core.Switching{To: "g"}.String())
						wait(time.Duration(random.Int64N(int64(3 * time.Second))))
					}
					s.accept("orders", fmt.Sprint("g", generation))
				}
				wait(2 * time.Minute)
				if got := b.strategyOf("orders"); got != "g9" {
					t.Errorf("publishes by %s at the end", got)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				s.delivered("orders")
				s.delivered("bills")
				s.unharmed()
			})
		})
	}
}

// A topic that is halted for a blocked event, while a comparison is under way, stays halted when that ends with another
// strategy.
func TestDispatcher_GoingOverEndsNoHalt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		s.cfg.LeaseTTL, s.cfg.PublishTimeout = time.Second, time.Second
		s.cfg.Retry.Exhausted = core.ExhaustedHalt
		b := newAdopting(t, s.broker.Server(), 1)
		b.SetScript(membroker.Always(membroker.RejectEvents(
			&core.PublishError{Class: core.ClassPermanent, Scope: core.ScopeMessage, Err: errBoom}, "orders/a/2").After(500 * time.Millisecond)))
		_, stop := s.run(s.store, b)
		s.commit(s.message("orders", "a"))
		wait(900 * time.Millisecond)
		s.commit(s.message("orders", "a")) // under way when the agreement ends
		wait(150 * time.Millisecond)
		s.accept("orders", "g2")
		s.commit(s.message("orders", "b")) // begins the comparison
		wait(time.Minute)
		if got := b.strategyOf("orders"); got != "g2" {
			t.Errorf("the topic is published by %s", got)
		}
		if n := len(s.broker.Messages("orders")); n != 1 {
			t.Errorf("%d messages, although the topic is halted after the first", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What the broker cannot go over to is refused as before.
func TestDispatcher_RefusesWhatTheBrokerDoesNotAdopt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		remembered, want string
		err              error
	}{
		"another kind":         {"none/v1", "accept the new strategy", nil},
		"the broker is away":   {"g2", "not today", &core.PublishError{Class: core.ClassUnavailable, Scope: core.ScopeDestination, Err: errors.New("not today")}},
		"resharding goes on":   {core.Switching{From: "g1", To: "g2"}.String(), "if it was broken off, run it again", nil},
		"it was configured so": {core.Switching{From: "g0", To: "g1"}.String(), "resharding in progress", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, memstore.Config{}, membroker.Config{})
				b := newAdopting(t, s.broker.Server(), 1)
				b.adoptErr = c.err
				s.accept("orders", c.remembered)
				s.enqueue("orders", 10, 3)
				d, stop := s.run(s.store, b)
				wait(time.Minute)
				if n := len(s.broker.Messages("orders")); n != 0 {
					t.Errorf("%d messages", n)
				}
				if h := d.Health(); !strings.Contains(h.Reason, c.want) {
					t.Errorf("health %+v", h)
				}
				s.accept("orders", "g1")
				wait(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				s.delivered("orders")
				s.unharmed()
			})
		})
	}
}

// An agreement does not outlive the time of a lease, whether the store answers late or not at all.
func TestDispatcher_TrustsAnAgreementForALease(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var changed time.Time
			s := newSystem(t, memstore.Config{Fault: func(_ context.Context, p memstore.Point) error {
				if p.Op != memstore.OpFingerprint || p.Member != "" {
					return nil
				}
				if p.Done { // the answer takes its time
					pass(800 * time.Millisecond)
				}
				mu.Lock()
				defer mu.Unlock()
				if away && !changed.IsZero() {
					return errBoom
				}
				return nil
			}}, membroker.Config{})
			s.cfg.LeaseTTL, s.cfg.PublishTimeout = 2*time.Second, 5*time.Second
			b := newAdopting(t, s.broker.Server(), 1)
			_, stop := s.run(s.store, b)
			flow := func(d time.Duration) { // each time an event of every key, so that every dispatcher has something to publish
				for end := time.Now().Add(d); time.Now().Before(end); wait(50 * time.Millisecond) {
					s.enqueue("orders", 1, 1)
				}
			}
			for i := range 6 { // at any moment between two comparisons
				flow(100*time.Millisecond + time.Duration(i)*450*time.Millisecond)
				mu.Lock()
				changed = time.Now()
				mu.Unlock()
				s.accepted("orders", "switching: g1 -> g2", away)
				from := changed
				flow(4 * time.Second)
				if last := b.lastBegun("orders", "g1").Sub(from); last >= s.cfg.LeaseTTL {
					t.Errorf("published for %v after the change; the store is away: %t", last, away)
				}
				mu.Lock()
				changed = time.Time{}
				mu.Unlock()
				s.accepted("orders", "g1", false)
				wait(20 * time.Second)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// accepted is accept, unless the store is away.
func (s *system) accepted(topic, fingerprint string, away bool) {
	s.t.Helper()
	if !away {
		s.accept(topic, fingerprint)
	}
}

// Told to stop while it waits for a comparison, or for a topic that is being switched, a dispatcher ends at once.
func TestDispatcher_StopsWhileItCompares(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{nil, errBoom} {
		synctest.Test(t, func(t *testing.T) {
			s := newSystem(t, memstore.Config{Fault: func(_ context.Context, p memstore.Point) error {
				if p.Op == memstore.OpFingerprint && p.Done {
					return fault
				}
				return nil
			}}, membroker.Config{})
			if fault == nil {
				s.accept("orders", core.Switching{From: "g1", To: "g2"}.String())
			}
			s.enqueue("orders", 10, 3)
			_, stop := s.run(s.store, newAdopting(t, s.broker.Server(), 1))
			wait(90 * time.Second)
			began := time.Now()
			if err := stop(); err != nil || time.Since(began) > time.Second {
				t.Errorf("stopped with %v after %v", err, time.Since(began))
			}
		})
	}
}

func TestSwitching(t *testing.T) {
	t.Parallel()
	want := core.Switching{From: "shards/v1:256:g1", To: "shards/v1:512:g2"}
	if got, ok := core.ParseSwitching(want.String()); !ok || got != want {
		t.Errorf("%q is read as %+v, %t", want, got, ok)
	}
	for _, other := range []string{
		"", "none/v1", "switching: none/v1", "shards/v1:256:g1 -> shards/v1:512:g2",
	} {
		if got, ok := core.ParseSwitching(other); ok {
			t.Errorf("%q is read as %+v", other, got)
		}
	}
	if got := (core.Switching{From: "a", To: "b"}).String(); got != "switching: a -> b" {
		t.Error("the form has changed: rows of a resharding that was broken off would not be understood")
	}
}
