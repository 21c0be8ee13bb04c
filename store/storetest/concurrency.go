package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
)

func concurrencyCases() []Case {
	return []Case{
		{Name: "Concurrency/AnyInterleavingOfTransactionsAndDispatchers", Run: anyInterleaving},
		rule("Concurrency/WritersAndTwoDispatchers", writersAndTwoDispatchers),
	}
}

// The whole guarantee: what is committed is published or parked, nothing else is, and the first publishes of a key are
// in commit order. Here every transaction, dispatcher and crash is a step of one goroutine, in a random order that the
// seed repeats.
func anyInterleaving(t testing.TB, h Harness) {
	for seed := range uint64(8) {
		s := newInterleaving(newFixture(t, h.withDefaults()), seed)
		s.run()
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

type interleaving struct {
	*fixture
	rng     *rand.Rand
	ledger  *ledger
	workers []*worker
	open    []*openTx
	keys    []string // without those of open transactions: writers of one aggregate wait for each other
}

type openTx struct {
	Tx
	keys     []string
	messages []core.Message
}

func newInterleaving(f *fixture, seed uint64) *interleaving {
	s := &interleaving{fixture: f, ledger: newLedger()}
	s.rng = rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a repeatable test
	s.workers = []*worker{
		newWorker(f.store, s.ledger, "one", seed*2),
		newWorker(f.tables.Store(f.TB), s.ledger, "two", seed*2+1),
	}
	for i := range 6 {
		s.keys = append(s.keys, fmt.Sprint("k", i))
	}
	return s
}

func (s *interleaving) run() {
	for range 300 {
		switch n := s.rng.IntN(100); {
		case n < 40:
			s.write()
		case n < 97:
			s.work()
		default:
			s.disturb()
		}
	}
	for len(s.open) > 0 {
		s.end()
	}
	s.ledger.close()
	for deadline := time.Now().Add(s.h.Patience); !s.ledger.finished() && time.Now().Before(deadline); {
		s.work()
	}
	s.compare(s.ledger)
}

// write goes on with one of a few transactions that are open at the same time.
func (s *interleaving) write() {
	switch {
	case s.h.OneWriter:
		s.start()
		s.end()
	case len(s.open) < 4 && s.rng.IntN(2) == 0:
		s.start()
	case len(s.open) > 0:
		s.end()
	}
}

func (s *interleaving) start() {
	s.rng.Shuffle(len(s.keys), func(i, j int) { s.keys[i], s.keys[j] = s.keys[j], s.keys[i] })
	tx := &openTx{Tx: s.begin(), keys: slices.Clone(s.keys[:1])}
	s.keys = s.keys[1:]
	for range 1 + s.rng.IntN(3) {
		m := s.ledger.event(tx.keys[0])
		s.enqueueIn(tx.Tx, m)
		tx.messages = append(tx.messages, m)
	}
	s.open = append(s.open, tx)
}

// end commits or rolls back any of the open transactions.
func (s *interleaving) end() {
	i := s.rng.IntN(len(s.open))
	tx := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	s.keys = append(s.keys, tx.keys...)
	if s.rng.IntN(5) == 0 {
		s.rollback(tx.Tx)
		return
	}
	s.commit(tx.Tx)
	s.ledger.commit(tx.messages)
}

func (s *interleaving) work() {
	w := s.workers[s.rng.IntN(len(s.workers))]
	if err := w.step(s.within()); err != nil {
		s.Fatalf("%s: %v", w.member(), err)
	}
}

// disturb lets leases run out behind their owner's back, or ends a dispatcher in the middle of its work.
func (s *interleaving) disturb() {
	w := s.workers[s.rng.IntN(len(s.workers))]
	if s.tables.Expire == nil {
		return
	}
	if s.rng.IntN(2) == 0 {
		s.tables.Expire(s.TB, w.crash())
		return
	}
	s.tables.Expire(s.TB, w.member())
}

func (f *fixture) compare(l *ledger) {
	f.Helper()
	if !l.finished() {
		f.Errorf("%d events were committed, %d are settled, and nothing more comes", l.total, len(l.settled))
	}
	for _, fault := range l.faults() {
		f.Errorf("%s", fault)
	}
	if f.Failed() {
		return
	}
	l.each(func(eventID string, state State) {
		if row, found := f.tables.Row(f.TB, eventID); found && row.State != state {
			f.Errorf("the row of %s is %s in the end, want %s", eventID, row.State, state)
		}
	})
}

// The same with goroutines: four writers and two dispatchers at once, and leases that end on the way.
func writersAndTwoDispatchers(f *fixture) {
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	l := newLedger()
	workers := []*worker{newWorker(f.store, l, "one", 1), newWorker(f.tables.Store(f.TB), l, "two", 2)}
	errs := make([]error, len(workers))
	var running sync.WaitGroup
	for i, w := range workers {
		running.Go(func() { errs[i] = w.run(ctx) })
	}
	writeErr := writeAll(ctx, f, l)
	if f.tables.Expire != nil {
		for _, w := range workers {
			f.tables.Expire(f.TB, w.member()) // names do not change: these workers do not crash
		}
	}
	l.close()
	select {
	case <-l.done:
	case <-f.within().Done():
	}
	cancel()
	running.Wait()
	if err := errors.Join(append(errs, writeErr)...); err != nil {
		f.Fatalf("%v", err)
	}
	f.compare(l)
}

// run works until everything is settled or ctx ends. It rests where nothing came, to leave the writers room.
func (w *worker) run(ctx context.Context) error {
	for !w.ledger.finished() && ctx.Err() == nil {
		before := w.published
		for range 4 {
			if err := w.step(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", w.member(), err)
			}
		}
		if w.published == before {
			rest, cancel := context.WithTimeout(ctx, time.Millisecond)
			<-rest.Done()
			cancel()
		}
	}
	return nil
}

// writeAll commits some hundred transactions from four goroutines. Writers of one aggregate wait for each other, as
// they do where they lock or version-check its row.
func writeAll(ctx context.Context, f *fixture, l *ledger) error {
	const writers, transactions, aggregates = 4, 60, 8
	locks := make([]sync.Mutex, aggregates)
	var one sync.Mutex
	errs := make([]error, writers)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 3)) //nolint:gosec // a repeatable test
			for n := 0; n < transactions && errs[i] == nil; n++ {
				key := rng.IntN(aggregates)
				locks[key].Lock()
				if f.h.OneWriter {
					one.Lock()
				}
				errs[i] = writeOne(ctx, f, l, fmt.Sprint("k", key), rng)
				if f.h.OneWriter {
					one.Unlock()
				}
				locks[key].Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func writeOne(ctx context.Context, f *fixture, l *ledger, key string, rng *rand.Rand) error {
	tx, err := f.tables.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	var messages []core.Message
	for range 1 + rng.IntN(3) {
		m := l.event(key)
		if _, err := tx.Enqueue(ctx, m); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		messages = append(messages, m)
		for range rng.IntN(50) {
			runtime.Gosched() // others commit meanwhile
		}
	}
	if rng.IntN(5) == 0 {
		return nil
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	l.commit(messages)
	return nil
}
