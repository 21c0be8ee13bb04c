package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/postgres"
)

// A transaction that commits late, below ids that were returned before.
func TestField_001_LateCommitIsNotSkipped(t *testing.T) {
	t.Parallel()
	s := open(t)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	slow := begin(t, s)
	if _, err := s.In(slow).Enqueue(t.Context(), message("a", "e1")); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, message("b", "e2"))
	r.await("e2 is delivered", func() bool { return len(delivered(b)) == 1 })
	r.fetches(5)
	commit(t, slow)
	r.await("e1 is delivered", func() bool { return len(delivered(b)) == 2 })
	r.fetches(10)
	equal(t, "delivered", delivered(b), []string{"e2", "e1"})
}

func TestField_002_ManyWritersLoseNothing(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *postgres.Config) { c.DSN += "&pool_max_conns=40" })
	b := membroker.New(membroker.Config{})
	first := dispatch(t, s, b)
	dispatch(t, openSame(t, s), b)
	var committed sync.Map
	var all sync.WaitGroup
	count := 0
	for w := range 32 {
		r := rand.New(rand.NewPCG(2, uint64(w)))
		all.Go(func() {
			for n := range 20 {
				id := fmt.Sprintf("w%d.%d", w, n)
				err := s.InTx(t.Context(), func(_ pgx.Tx, box core.Enqueuer) error {
					_, err := box.Enqueue(t.Context(), message(fmt.Sprint("a", r.IntN(20)), id))
					pause(r, 1, 20)
					if r.IntN(10) == 0 {
						err = errUndo
					}
					return err
				})
				if err == nil {
					committed.Store(id, true)
				}
			}
		})
	}
	all.Wait()
	committed.Range(func(any, any) bool { count++; return true })
	first.await("all are delivered", func() bool { return len(delivered(b)) >= count })
	got := delivered(b)
	slices.Sort(got)
	for _, id := range slices.Compact(got) {
		if _, was := committed.Load(id); !was {
			t.Errorf("%s was delivered and not committed", id)
		}
	}
	if n := len(slices.Compact(got)); n != count {
		t.Errorf("%d of %d committed events were delivered", n, count)
	}
}

// openSame opens another store on the same tables, as a second process does.
func openSame(t *testing.T, s *postgres.Store) *postgres.Store {
	t.Helper()
	return openConfig(t, s.Config())
}

// The event of a savepoint that was rolled back is for data that does not exist.
func TestField_070_RolledBackSavepoint(t *testing.T) {
	t.Parallel()
	s := open(t)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	write := func(event string, undo error) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := s.In(tx).Enqueue(t.Context(), message("a", event))
			return errors.Join(err, undo)
		}
	}
	err := s.InTx(t.Context(), func(tx pgx.Tx, box core.Enqueuer) error {
		_ = write("e1", nil)(tx)
		_ = pgx.BeginFunc(t.Context(), tx, write("e2", errUndo))
		return pgx.BeginFunc(t.Context(), tx, write("e3", nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	r.await("e1 and e3 are delivered", func() bool { return len(delivered(b)) == 2 })
	if err := s.InTx(t.Context(), func(tx pgx.Tx, _ core.Enqueuer) error { return write("e4", errUndo)(tx) }); !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	r.fetches(10)
	equal(t, "delivered", delivered(b), []string{"e1", "e3"})
}

// Nothing leaves before the commit has returned, and nothing when it fails.
func TestField_071_NothingBeforeTheCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	tx := begin(t, s)
	if _, err := s.In(tx).Enqueue(t.Context(), message("a", "e1")); err != nil {
		t.Fatal(err)
	}
	s.Nudge()
	r.fetches(5)
	equal(t, "delivered before the commit", delivered(b), nil)
	commit(t, tx)
	r.await("e1 is delivered", func() bool { return len(delivered(b)) == 1 })

	execSQL(t, s, `CREATE TABLE {outbox_business} (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	err := s.InTx(t.Context(), func(tx pgx.Tx, box core.Enqueuer) error {
		_, err := tx.Exec(t.Context(), s.SQL(`INSERT INTO {outbox_business} VALUES (1), (1)`))
		if err != nil {
			return err
		}
		_, err = box.Enqueue(t.Context(), message("a", "e2"))
		return err
	})
	if err == nil {
		t.Fatal("a commit that breaks a deferred constraint succeeded")
	}
	r.fetches(5)
	equal(t, "delivered after the failed commit", delivered(b), []string{"e1"})
}

// Two dispatchers and one key.
func TestField_074_OneKeyTwoDispatchers(t *testing.T) {
	t.Parallel()
	s := open(t)
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(74, 0))
	b := membroker.New(membroker.Config{Script: func(membroker.Call) membroker.Plan {
		mu.Lock()
		defer mu.Unlock()
		return membroker.Deliver().After(time.Duration(r.IntN(3000)) * time.Microsecond)
	}})
	var want []string
	for n := range 300 {
		want = append(want, fmt.Sprintf("e%03d", n))
	}
	first := dispatch(t, s, b)
	dispatch(t, openSame(t, s), b)
	for _, id := range want {
		enqueue(t, s, message("a", id))
	}
	first.await("all are delivered", func() bool { return len(delivered(b)) >= len(want) })
	equal(t, "delivered", delivered(b), want)
}

// The order is that of the ids, whatever columns only some rows have.
func TestField_078_RetriedAndFreshRowsAreInIDOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	var all []core.Message
	for n := range 7 {
		all = append(all, message("a", fmt.Sprint("e", n+1)))
	}
	enqueue(t, s, all...)
	execSQL(t, s, `UPDATE {outbox} SET attempt_count = 1, next_attempt_at = now() - interval '1 second' WHERE event_id IN ('e1', 'e2')`)
	b := membroker.New(membroker.Config{})
	dispatch(t, s, b).await("all are delivered", func() bool { return len(delivered(b)) == 7 })
	equal(t, "delivered", delivered(b), []string{"e1", "e2", "e3", "e4", "e5", "e6", "e7"})
}

// A slow broker holds no lock and no transaction, and nobody else waits for it.
func TestField_090_NoTransactionIsOpenDuringAPublish(t *testing.T) {
	t.Parallel()
	const name = "outbox-field-090"
	s := open(t, func(c *postgres.Config) { c.DSN += "&application_name=" + name })
	release := make(chan struct{})
	slow := membroker.New(membroker.Config{MaxInFlight: 1, Script: membroker.Always(membroker.Hold(release))})
	held := dispatch(t, s, slow)
	t.Cleanup(func() { close(release) }) // before the dispatcher is stopped
	var mine, others []core.Message
	held.await("it holds lanes", func() bool {
		return queryOne[int](t, s, `SELECT count(*) FROM {outbox_lanes} WHERE owner IS NOT NULL`) == 64
	})
	enqueue(t, s, message("a", "e1"))
	held.fetches(3)
	fast := membroker.New(membroker.Config{})
	other := dispatch(t, openSame(t, s), fast)
	other.await("it has its share", func() bool {
		return queryOne[int](t, s, `SELECT count(DISTINCT owner) FROM {outbox_lanes}`) == 2 &&
			queryOne[int](t, s, `SELECT count(*) FROM {outbox_lanes} GROUP BY owner ORDER BY 1 LIMIT 1`) >= 31
	})
	owner := queryOne[string](t, s, `SELECT owner FROM {outbox_lanes} WHERE lane = $1`, ordering.Lane("order", "a", 64))
	for n := range 400 {
		m := message(fmt.Sprint("k", n), fmt.Sprint("x", n))
		lane := ordering.Lane("order", m.AggregateID, 64)
		if queryOne[string](t, s, `SELECT owner FROM {outbox_lanes} WHERE lane = $1`, lane) == owner {
			mine = append(mine, m)
		} else {
			others = append(others, m)
		}
	}
	enqueue(t, s, others[:100]...)
	other.await("the other one delivers", func() bool { return len(delivered(fast)) == 100 })
	open := queryOne[int](t, s, `SELECT count(*) FROM pg_stat_activity
		WHERE application_name = $1 AND state LIKE 'idle in transaction%' AND now() - state_change > interval '1 second'`, name)
	if open > 0 || len(mine) == 0 {
		t.Errorf("%d transactions are open while a publish waits", open)
	}
}

// Under a serializable default nothing fails with serialization errors, and nothing is read from an old snapshot.
func TestField_098_SerializableByDefault(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *postgres.Config) { c.DSN += "&default_transaction_isolation=serializable&pool_max_conns=20" })
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	dispatch(t, openSame(t, s), b)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for n := range 100 {
				for {
					err := s.InTx(t.Context(), func(_ pgx.Tx, box core.Enqueuer) error {
						_, err := box.Enqueue(t.Context(), message(fmt.Sprint("a", w), fmt.Sprintf("w%d.%03d", w, n)))
						return err
					})
					if err == nil {
						break
					}
					if t.Context().Err() != nil {
						return
					}
				}
			}
		})
	}
	all.Wait()
	r.await("all are delivered", func() bool { return len(delivered(b)) >= 400 })
	got := delivered(b)
	for w := range 4 {
		key := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return id[:2] != fmt.Sprint("w", w) })
		if !slices.IsSorted(key) || len(key) != 100 {
			t.Errorf("key %d: %v", w, key)
		}
	}
}

// A transaction that stays open, with something else in it, holds up nobody.
func TestField_110_OpenTransactionDelaysNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	execSQL(t, s, `CREATE TABLE {outbox_unrelated} (n int)`)
	idle := begin(t, s)
	if _, err := idle.Exec(t.Context(), s.SQL(`INSERT INTO {outbox_unrelated} VALUES (1)`)); err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		enqueue(t, s, message(fmt.Sprint("a", n%10), fmt.Sprint("e", n)))
	}
	r.await("all are delivered", func() bool { return len(delivered(b)) == 100 })
	if _, err := s.In(idle).Enqueue(t.Context(), message("a1", "last")); err != nil {
		t.Fatal(err)
	}
	commit(t, idle)
	r.await("the late one too", func() bool { return len(delivered(b)) == 101 })
}

// A commit whose answer got lost is tried again with the same event id.
func TestField_069_LostCommitReply(t *testing.T) {
	t.Parallel()
	s := open(t)
	lossy := openConfig(t, s.Config())
	for range 2 {
		err := lossy.InTx(t.Context(), func(tx pgx.Tx, box core.Enqueuer) error {
			if _, err := box.Enqueue(t.Context(), message("a", "e1")); err != nil {
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cut := connectCut(t)
	tx, err := cut.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.In(tx).Enqueue(t.Context(), message("b", "e2")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err == nil || errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Fatalf("the reply to the commit got lost, and the error is %v", err)
	}
	for queryOne[int](t, s, `SELECT count(*) FROM {outbox} WHERE event_id = 'e2'`) == 0 {
		if within(t).Err() != nil {
			t.Fatal("the commit never happened")
		}
	}
	enqueue(t, s, message("b", "e2"))
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	r.await("both are delivered", func() bool { return len(delivered(b)) == 2 })
	r.fetches(5)
	got := delivered(b)
	slices.Sort(got)
	equal(t, "delivered", got, []string{"e1", "e2"})
}
