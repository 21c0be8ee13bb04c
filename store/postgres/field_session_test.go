package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// The sessions of a dispatcher are ended again and again while rows flow. Its leases are rows and not sessions: it keeps
// them under their epochs, the other dispatcher gets none of them, and nothing goes out twice or out of order.
func TestField_050_KilledSessionsKeepTheirLanes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	name := f.s.Config().Schema + "-killed"
	victim := f.join(openConfig(t, f.config(func(c *postgres.Config) { c.DSN += "&application_name=" + name })), 10*time.Second)
	other := f.join(openSame(t, f.s), 10*time.Second)
	f.awaitShares()
	lanes := f.lanes()
	f.write()
	killed := 0
	for range 15 {
		published, others := victim.published.Load(), other.published.Load()
		killed += queryOne[int](t, f.s, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
			FROM pg_stat_activity WHERE application_name = $1`, name)
		f.await("both go on", func() bool {
			return victim.published.Load() > published+20 && other.published.Load() > others+20
		})
	}
	if got := f.lanes(); got != lanes {
		t.Errorf("the lanes changed hands:\n%s\nbefore:\n%s", got, lanes)
	}
	repeats := f.finish()
	if lost := victim.lost.Load() + other.lost.Load(); lost > 0 || repeats > 0 {
		t.Errorf("%d lanes were lost, %d events came twice", lost, repeats)
	}
	if killed < 15 {
		t.Errorf("%d sessions were killed: nothing was tested", killed)
	}
	t.Logf("%d sessions killed, %d events", killed, f.written.Load())
}

// The connections of a dispatcher go dead without a word, and new ones work: it goes on with those.
func TestField_050_SilentSessionsAreReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	hole := newHole(t)
	victim := f.join(hole.open(f.config()), 2*time.Second)
	f.join(openSame(t, f.s), 2*time.Second)
	f.write()
	for range 3 {
		f.awaitShares() // so the victim is over the last silence, and has something to do
		hole.proxy.freeze()
		failed, published := victim.failed.Load(), victim.published.Load()
		f.await("the silence is noticed, and new connections carry on", func() bool {
			return victim.failed.Load() > failed && victim.published.Load() > published+20
		})
		hole.proxy.thaw()
	}
	t.Logf("%d repeats of %d events", f.finish(), f.written.Load())
}

// A dispatcher that nothing reaches for longer than its lease stops in time, the other one takes over, and what was on
// its way to the database when the hole opened arrives when it closes, too late to count.
func TestField_050_ABlackHoleLongerThanTheLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.broker.SetScript(membroker.Always(membroker.Deliver().After(20 * time.Millisecond)))
	hole := newHole(t)
	victim := f.join(hole.open(f.config()), 2*time.Second, func(c *core.Config) { c.PublishSize = 1 }) // it has a backlog
	other := f.join(openSame(t, f.s), 2*time.Second)
	f.awaitShares()
	f.write()
	for range 3 {
		before := victim.published.Load()
		f.await("the victim publishes", func() bool { return victim.published.Load() > before+100 })
		fill := hole.swallow()
		f.await("the other one has all lanes", func() bool { return f.owners() == 1 })
		published, others := victim.published.Load(), other.published.Load()
		f.await("the other one goes on alone", func() bool { return other.published.Load() > others+200 })
		if n := victim.published.Load(); n > published {
			t.Errorf("%d events were published by the one that had lost its lanes", n-published)
		}
		fill()
		f.awaitShares()
	}
	t.Logf("%d repeats of %d events", f.finish(), f.written.Load())
}

// fleet are dispatchers on one table, with a writer beside them.
type fleet struct {
	t       *testing.T
	s       *postgres.Store
	broker  *membroker.Broker
	stops   []func()
	changed chan struct{}
	written atomic.Int64
	quiet   func() // ends the writer
}

const fleetKeys = 30

func newFleet(t *testing.T) *fleet {
	t.Helper()
	return &fleet{
		t: t, s: open(t), broker: membroker.New(membroker.Config{MaxInFlight: 4}), changed: make(chan struct{}, 1),
		quiet: func() {},
	}
}

func (f *fleet) config(change ...func(*postgres.Config)) postgres.Config {
	cfg := f.s.Config()
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// fleetMember is a dispatcher and what it did.
type fleetMember struct {
	changed                 chan struct{}
	published, failed, lost atomic.Int64
}

func (w *fleetMember) Observe(e core.Event) {
	switch e := e.(type) {
	case core.PublishEvent:
		w.published.Add(int64(len(e.Batch)))
	case core.FetchEvent:
		w.note(e.Err)
	case core.SettleEvent:
		w.note(e.Err)
	case core.LanesEvent:
		w.lost.Add(int64(e.Lost))
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *fleetMember) note(err error) {
	if err != nil {
		w.failed.Add(1)
	}
}

func (f *fleet) join(s core.Store, ttl time.Duration, change ...func(*core.Config)) *fleetMember {
	f.t.Helper()
	w := &fleetMember{changed: f.changed}
	change = append(change, func(c *core.Config) {
		c.Logger = slog.New(slog.DiscardHandler)
		c.Observer, c.LeaseTTL, c.Outage = w, ttl, core.Backoff{Initial: time.Millisecond, Max: 50 * time.Millisecond}
	})
	r := dispatch(f.t, s, f.broker, change...)
	f.stops = append(f.stops, r.stop)
	return w
}

func (f *fleet) await(what string, condition func() bool) {
	f.t.Helper()
	(&running{t: f.t, changed: f.changed}).await(what, condition)
}

// owners is how many dispatchers have lanes; a lane without an owner counts for one more.
func (f *fleet) owners() int {
	return queryOne[int](f.t, f.s, `SELECT count(DISTINCT coalesce(owner, '')) FROM {outbox_lanes}`)
}

// awaitShares returns when each of the two has its half of the lanes.
func (f *fleet) awaitShares() {
	f.t.Helper()
	f.await("the lanes are shared", func() bool {
		return queryOne[bool](f.t, f.s, `SELECT count(*) = 2 AND sum(lanes) = 64 AND max(lanes) = 32
			FROM (SELECT count(*) AS lanes FROM {outbox_lanes} WHERE owner IS NOT NULL GROUP BY owner) o`)
	})
}

// lanes are the owners and epochs.
func (f *fleet) lanes() string {
	return queryOne[string](f.t, f.s, `SELECT string_agg(concat_ws(' ', lane, owner, epoch), E'\n' ORDER BY lane) FROM {outbox_lanes}`)
}

// write enqueues events of all keys in turn until quiet is called.
func (f *fleet) write() {
	ctx, stop := context.WithCancel(f.t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			n := f.written.Load()
			m := message(fmt.Sprint("a", n%fleetKeys), fmt.Sprintf("a%d/%d", n%fleetKeys, n/fleetKeys+1))
			if err := f.enqueue(context.WithoutCancel(ctx), m); err != nil {
				f.t.Error(err)
				return
			}
			f.written.Add(1)
		}
	})
	f.quiet = sync.OnceFunc(func() { stop(); writing.Wait() })
	f.t.Cleanup(f.quiet)
}

func (f *fleet) enqueue(ctx context.Context, m core.Message) error {
	return f.s.InTx(ctx, func(_ pgx.Tx, box core.Enqueuer) error {
		_, err := box.Enqueue(ctx, m)
		return err
	})
}

// finish waits until everything is settled, stops all, and checks what arrived.
func (f *fleet) finish() (repeats int) {
	f.t.Helper()
	f.quiet()
	f.await("everything is settled", func() bool {
		return queryOne[bool](f.t, f.s, `SELECT NOT EXISTS (SELECT FROM {outbox} WHERE published_at IS NULL)`)
	})
	for _, stop := range f.stops {
		stop()
	}
	last := map[string]int{}
	for _, m := range f.broker.Messages("order") {
		var key, n int
		if _, err := fmt.Sscanf(m.EventID, "a%d/%d", &key, &n); err != nil {
			f.t.Fatalf("%q: %v", m.EventID, err)
		}
		switch id := m.Key.AggregateID; {
		case n <= last[id]:
			repeats++
		case n > last[id]+1:
			f.t.Errorf("%s came after %d", m.EventID, last[id])
			fallthrough
		default:
			last[id] = n
		}
	}
	arrived := int64(0)
	for _, n := range last {
		arrived += int64(n)
	}
	if arrived != f.written.Load() {
		f.t.Errorf("%d events were committed, %d arrived", f.written.Load(), arrived)
	}
	if err := f.broker.Misuse(); err != nil {
		for line := range strings.Lines(err.Error()) {
			if strings.Contains(line, "in two calls at once") {
				f.t.Error(line)
			}
		}
	}
	return repeats
}
