package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

// relay publishes until it has seen so many events, and returns how often it saw each.
func relay(ctx context.Context, s *sqlite.Store, name string, count int) (seen map[string]int, err error) {
	seen = make(map[string]int)
	leases, err := s.Lease(ctx, core.LeaseRequest{Member: name, TTL: time.Hour, Want: []int{0}})
	if err != nil {
		return seen, err
	}
	req := core.FetchRequest{Member: name, MaxRecords: 20, MaxBytes: 1 << 20}
	req.Lanes = []core.LaneFetch{{Lease: leases.Held[0]}}
	for len(seen) < count {
		batch, err := s.Fetch(ctx, req)
		if err != nil {
			return seen, err
		}
		done := core.Settlement{Member: name, Leases: leases.Held}
		for _, r := range batch.Lanes[0].Records {
			seen[r.EventID]++
			done.Items = append(done.Items, core.SettleItem{Record: r, Status: core.StatusPublished})
		}
		if len(done.Items) == 0 {
			s.Sleep(ctx, time.Second)
			continue
		}
		if _, err := s.Settle(ctx, done); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// background runs fn until stop is called, which returns fn's first error.
func background(t *testing.T, fn func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	result := make(chan error, 1)
	go func() {
		for {
			if err := fn(ctx); err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				result <- err
				return
			}
		}
	}()
	return func() error { cancel(); return <-result }
}

func TestField_036_CleanerRunsBesideTheRelay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	app, side := openFile(t, path), openFile(t, path)
	exec(t, app, `CREATE TRIGGER guard BEFORE DELETE ON outbox WHEN OLD.published_at IS NULL
		BEGIN SELECT RAISE(ABORT, 'a row that was not published is deleted'); END`)
	exec(t, app, `INSERT INTO outbox (event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers,
		created_at, published_at, attempt_count, next_attempt_at, last_error, first_failed_at, dlq, replay)
		VALUES (NULL, NULL, 'order', 'plain', 'order.created', '{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`)

	const writers, transactions = 4, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range transactions {
				if err := addThree(t.Context(), app, fmt.Sprintf("w%d-%d", w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	stopCleaner := background(t, func(ctx context.Context) error {
		_, err := side.Purge(ctx, 0, 0)
		return err
	})
	seen, err := relay(within(t), side, "relay", 3*writers*transactions+1)
	if err := errors.Join(err, stopCleaner()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for event, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", event, n)
		}
	}
}

// addThree enqueues three events with time between them.
func addThree(ctx context.Context, s *sqlite.Store, name string) error {
	return s.InTx(ctx, func(_ *sql.Tx, box core.Enqueuer) error {
		for i := range 3 {
			if _, err := box.Enqueue(ctx, message(name, fmt.Sprint(name, "-", i))); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestField_106_NoBusyError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	app, side, cli := openFile(t, path), openFile(t, path), openFile(t, path)
	exec(t, app, `CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER NOT NULL)`)

	const writers, transactions = 2, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range transactions {
				if err := readThenWrite(t.Context(), app, fmt.Sprintf("w%d-%d", w, i)); err != nil {
					t.Errorf("the application got %v", err)
					return
				}
			}
		})
	}
	stopStandby := background(t, func(ctx context.Context) error { // renews as if its TTL were nothing
		_, err := cli.Lease(ctx, core.LeaseRequest{Member: "standby", TTL: time.Hour})
		return err
	})
	if _, err := relay(within(t), side, "relay", writers*transactions); err != nil {
		t.Errorf("the relay got %v", err)
	}
	if err := stopStandby(); err != nil {
		t.Errorf("the standby got %v", err)
	}
	wg.Wait()
}

// readThenWrite is a transaction that fails when it begins deferred and another connection writes.
func readThenWrite(ctx context.Context, s *sqlite.Store, event string) error {
	return s.InTx(ctx, func(tx *sql.Tx, box core.Enqueuer) error {
		var total int
		if err := tx.QueryRowContext(ctx, `SELECT ifnull(max(total), 0) FROM orders`).Scan(&total); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (total) VALUES (?)`, total+1); err != nil {
			return err
		}
		_, err := box.Enqueue(ctx, message("a", event))
		return err
	})
}

// While a message is published, between fetch and settle, others can write.
func TestField_106_NoLockDuringPublish(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := openFile(t, path)
	impatient := openFile(t, path, func(c *sqlite.Config) { c.BusyTimeout = time.Millisecond })
	enqueue(t, s, numbered(1)...)
	m := join(t, s, "m1")
	records := m.fetch().Records
	enqueue(t, impatient, message("b", "while publishing"))
	m.settle(core.StatusPublished, records...)
	equal(t, "then", m.drain(), []string{"while publishing"})
}
