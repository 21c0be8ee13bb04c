package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func TestDispatcher_ReplicasShareLanesEvenly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{MaxInFlight: 2})
		var running []*core.Dispatcher
		var stops []func() error
		for range 3 {
			d, stop := s.start()
			running, stops = append(running, d), append(stops, stop)
			s.enqueue("orders", 500, 100)
			wait(20 * time.Second)
		}
		for _, d := range running {
			if h := d.Health(); !h.Ready || h.Lanes < 21 || h.Lanes > 22 || h.Members != 3 {
				t.Errorf("health %+v", h)
			}
		}
		for i, stop := range stops {
			s.enqueue("orders", 500, 100)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if i == 0 {
				wait(20 * time.Second)
				if h := running[1].Health(); h.Lanes != 32 {
					t.Errorf("after one left: %+v", h)
				}
			}
		}
		d, stop := s.start()
		wait(time.Second)
		if h := d.Health(); h.Lanes != 64 {
			t.Errorf("a replica alone, started after the others left: %+v", h)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats though nothing crashed", repeats)
		}
		if err := s.broker.Misuse(); err != nil {
			t.Error(err)
		}
	})
}

func TestDispatcher_TakesOverFromACrashedReplicaWithinOneTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var crashed atomic.Bool
		var victim atomic.Pointer[string]
		s := newSystem(t, memstore.Config{
			Fault: func(ctx context.Context, p memstore.Point) error {
				if v := victim.Load(); crashed.Load() && v != nil && p.Member == *v {
					<-ctx.Done()
					return ctx.Err()
				}
				if p.Op == memstore.OpLease && victim.Load() == nil {
					victim.Store(&p.Member)
				}
				return nil
			},
		}, membroker.Config{})
		_, stopVictim := s.start()
		wait(time.Second)
		survivor, stop := s.start()
		wait(19*time.Second + 500*time.Millisecond) // just after a renewal of the victim, long before one of the survivor
		crashed.Store(true)
		s.enqueue("orders", 100, 50)
		wait(core.DefaultLeaseTTL)
		if h := survivor.Health(); h.Lanes != 64 {
			t.Errorf("the survivor has %+v", h)
		}
		s.delivered("orders")
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := stopVictim(); err != nil && !errors.Is(err, core.ErrShutdownTimeout) {
			t.Error(err)
		}
	})
}

func TestDispatcher_ShutdownFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.Always(membroker.Deliver().After(3 * time.Second))})
		s.enqueue("orders", 5, 5)
		_, stop := s.start()
		wait(time.Second)
		s.enqueue("orders", 5, 5)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		published := 0
		for _, row := range s.store.Rows() {
			if row.State == memstore.Published {
				published++
			}
		}
		if published != 5 {
			t.Errorf("%d published, want the 5 that were in flight", published)
		}
		d, err := core.NewDispatcher(s.store, s.broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

func TestDispatcher_ShutdownIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.Always(membroker.Hang())})
		s.cfg.PublishTimeout, s.cfg.ShutdownTimeout = time.Hour, 5*time.Second
		s.enqueue("orders", 5, 5)
		_, stop := s.start()
		wait(time.Second)
		start := time.Now()
		if err := stop(); !errors.Is(err, core.ErrShutdownTimeout) {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("took %v", took)
		}
		s.broker.SetScript(nil)
		d, err := core.NewDispatcher(s.store, s.broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

func TestDispatcher_RunTwiceAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		d, stop := s.start()
		wait(time.Millisecond)
		if err := d.Run(t.Context()); !errors.Is(err, core.ErrRunning) {
			t.Errorf("a second Run returned %v", err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if h := d.Health(); h.Ready || h.Reason != "not running" {
			t.Errorf("health after Run: %+v", h)
		}
		s.enqueue("orders", 10, 2)
		if err := d.RunOnce(t.Context()); err != nil {
			t.Errorf("RunOnce after Run: %v", err)
		}
		s.delivered("orders")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Run(ended); err != nil {
			t.Errorf("Run with an ended context: %v", err)
		}
	})
}

func TestDispatcher_WaitsForTheMigration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var migrated atomic.Bool
		s := newSystem(t, memstore.Config{Fault: func(_ context.Context, p memstore.Point) error {
			if p.Op == memstore.OpLease && !migrated.Load() {
				return fmt.Errorf("memstore: %w", core.ErrNotMigrated)
			}
			return nil
		}}, membroker.Config{})
		d, stop := s.start()
		wait(30 * time.Second)
		if h := d.Health(); h.Ready || !strings.Contains(h.Reason, "run the migrations") {
			t.Errorf("health %+v", h)
		}
		migrated.Store(true)
		s.enqueue("orders", 10, 2)
		wait(20 * time.Second)
		if h := d.Health(); !h.Ready {
			t.Errorf("health after the migration: %+v", h)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

func TestDispatcher_RunOnceTellsWhatStoppedIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.On("bills", membroker.Always(membroker.Misconfigured()))})
		s.enqueue("bills", 10, 2)
		s.enqueue("orders", 10, 2)
		d, err := core.NewDispatcher(s.store, s.broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "bills") {
			t.Errorf("RunOnce returned %v", err)
		}
		s.delivered("orders")
		if err := s.store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); !errors.Is(err, core.ErrClosed) {
			t.Errorf("RunOnce on a closed store returned %v", err)
		}
	})
}

// TestDispatcher_StoreFaultsLoseNothing fails every third call of each kind, before or after it was done.
func TestDispatcher_StoreFaultsLoseNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		s := newSystem(t, memstore.Config{Lanes: 4, Fault: func(_ context.Context, p memstore.Point) error {
			if p.Member != "" && calls.Add(1)%3 == 0 {
				return errBoom
			}
			return nil
		}}, membroker.Config{
			MaxInFlight: 3, Script: membroker.Always(membroker.RejectEvents(passing(), "orders/a1/5", "orders/a2/1")),
		})
		s.cfg.Retry.MaxAttempts = 3
		s.enqueue("orders", 600, 6)
		_, stop := s.start()
		wait(5 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders", "orders/a1/5", "orders/a2/1")
		for _, row := range s.store.Rows() {
			want := 0
			if row.State == memstore.Parked {
				want = 3
			}
			if row.Attempts != want || row.State == memstore.Pending {
				t.Errorf("%s: %s with %d attempts", row.EventID, row.State, row.Attempts)
			}
		}
	})
}

func TestDispatcher_ANudgeEndsTheSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		_, stop := s.start()
		wait(time.Hour)
		s.enqueue("orders", 1, 1) // a commit nudges
		wait(time.Millisecond)
		s.delivered("orders")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDispatcher_MemoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{Script: membroker.Always(membroker.Deliver().After(time.Second))})
		s.cfg.FetchSize, s.cfg.MaxInFlight = 10, 40
		s.enqueue("orders", 2000, 500)
		d, stop := s.start()
		most := 0
		for range 300 {
			wait(100 * time.Millisecond)
			most = max(most, d.Health().InFlight)
		}
		if most > 40 || most < 20 {
			t.Errorf("%d records in flight, the limit is 40", most)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A replica that leaves dispatching to others is ready, so that a deployment goes on, and touches nothing.
func TestDispatcher_EnqueueOnlyIsReadyAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		s.cfg.EnqueueOnly = true
		s.enqueue("orders", 3, 1)
		d, stop := s.start()
		wait(time.Hour)
		if h := d.Health(); !h.Ready || h.Reason == "" || h.Lanes != 0 {
			t.Errorf("health %+v; want ready, and why it does nothing", h)
		}
		if err := d.RunOnce(t.Context()); !errors.Is(err, core.ErrRunning) {
			t.Errorf("RunOnce beside Run: %v, want ErrRunning", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Error(err)
		}
		if h := d.Health(); h.Ready {
			t.Errorf("health %+v after the end; want not ready", h)
		}
		if got := len(s.broker.Messages("orders")); got != 0 {
			t.Errorf("%d events were published", got)
		}
		s.wg.Wait()
	})
}
