package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

var (
	propertyTime = flag.Duration("postgres.property", 8*time.Second, "how long the property test writes")
	propertySeed = flag.Uint64("postgres.seed", 1, "its seed")
)

// TestProperty_FirstOccurrencesAreInCommitOrder writes in every way there is, with pauses, rollbacks, a write
// transaction and a snapshot held for the whole time, while dispatchers start, stop, are paused past their leases and
// killed. What is delivered is what was committed, and the first occurrences of each key are in commit order.
func TestProperty_FirstOccurrencesAreInCommitOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds")
	}
	t.Parallel()
	s := open(t, func(c *postgres.Config) { c.DSN += "&pool_max_conns=60" })
	w := newWorld(t, s)
	w.hold()
	broker := newBrokerLog(t)
	child := childConfig{
		DSN: serverURL(t), Schema: w.schema, Broker: broker.listener.Addr().String(), TTL: 1500 * time.Millisecond,
	}
	ctx, cancel := context.WithTimeout(t.Context(), *propertyTime)
	defer cancel()
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() { w.write(ctx, rand.New(rand.NewPCG(*propertySeed, uint64(n)))) })
	}
	all.Go(func() { w.torment(ctx, child, rand.New(rand.NewPCG(*propertySeed, 1000))) })
	all.Wait()

	calm := startChild(t, child)
	w.awaitEmpty()
	kill(calm)
	committed := w.committed()
	total := 0
	for _, n := range committed {
		total += n
	}
	repeats := broker.check(t, committed)
	t.Logf("%d events committed and delivered, %d repeats; dispatchers killed %d, paused %d, stopped %d times",
		total, repeats, w.killed, w.paused, w.stopped)
	if total == 0 || w.killed+w.paused+w.stopped == 0 {
		t.Error("nothing was tested")
	}
}

// world is a business table beside the outbox: n counts the events of each key.
type world struct {
	t                       *testing.T
	s                       *postgres.Store
	schema                  string
	pool                    *pgxpool.Pool
	killed, paused, stopped int
}

const worldKeys = 50

func newWorld(t *testing.T, s *postgres.Store) *world {
	t.Helper()
	w := &world{t: t, s: s, pool: s.Pool()}
	w.schema = queryOne[string](t, s, `SELECT nspname FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
		WHERE c.oid = {'outbox'}::regclass`)
	execSQL(t, s, `CREATE TABLE {outbox_business} (id int PRIMARY KEY, n int NOT NULL)`)
	execSQL(t, s, `INSERT INTO {outbox_business} SELECT g, 0 FROM generate_series(0, $1::int - 1) g`, worldKeys)
	execSQL(t, s, `CREATE TABLE {outbox_unrelated} (n int)`)
	return w
}

// hold keeps a write transaction and a snapshot open to the end.
func (w *world) hold() {
	w.t.Helper()
	writing := begin(w.t, w.s)
	if _, err := writing.Exec(w.t.Context(), w.s.SQL(`INSERT INTO {outbox_unrelated} VALUES (1)`)); err != nil {
		w.t.Fatal(err)
	}
	reading, err := w.pool.BeginTx(w.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = reading.Rollback(context.Background()) })
	if _, err := reading.Exec(w.t.Context(), w.s.SQL(`SELECT count(*) FROM {outbox_unrelated}`)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		if err := w.transaction(context.WithoutCancel(ctx), r); err != nil {
			w.t.Error(err)
			return
		}
	}
}

const (
	bumpSQL  = `UPDATE {outbox_business} SET n = n + 1 WHERE id = $1 RETURNING n`
	aloneSQL = `WITH b AS (UPDATE {outbox_business} SET n = n + 1 WHERE id = $1 RETURNING id, n)
		INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'thing', id::text, 'thing.changed', jsonb_build_object('Key', id, 'N', n) FROM b`
)

// transaction writes one key in one of the ways that applications have.
func (w *world) transaction(ctx context.Context, r *rand.Rand) error {
	key := r.IntN(worldKeys)
	if r.IntN(5) == 0 { // one statement, on its own
		_, err := w.pool.Exec(ctx, w.s.SQL(aloneSQL), key)
		return err
	}
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if r.IntN(4) == 0 { // the xid comes early, from something else
		if _, err := tx.Exec(ctx, w.s.SQL(`INSERT INTO {outbox_unrelated} VALUES (2)`)); err != nil {
			return err
		}
		pause(r, 4, 20)
	}
	for range 1 + r.IntN(3) {
		if err := w.event(ctx, tx, key, r); err != nil {
			return err
		}
	}
	switch pause(r, 4, 10); r.IntN(60) {
	case 0:
		pause(r, 1, 2000)
	case 1, 2, 3:
		pause(r, 1, 200)
	}
	switch {
	case r.IntN(10) == 0:
		return tx.Rollback(ctx)
	case r.IntN(10) == 0:
		return w.prepared(ctx, tx, r)
	}
	return tx.Commit(ctx)
}

// event writes one event of the key.
func (w *world) event(ctx context.Context, tx pgx.Tx, key int, r *rand.Rand) error {
	var n int
	if err := tx.QueryRow(ctx, w.s.SQL(bumpSQL), key).Scan(&n); err != nil {
		return err
	}
	pause(r, 6, 5)
	m := core.Message{
		AggregateType: "thing", AggregateID: fmt.Sprint(key), EventType: "thing.changed",
		Payload: fmt.Appendf(nil, `{"Key": %d, "N": %d}`, key, n),
	}
	var err error
	switch r.IntN(4) {
	case 0:
		_, err = w.s.EnqueueCopy(ctx, tx, m)
	case 1: // within a savepoint, after one that was rolled back
		err = errors.Join(pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := w.s.In(tx).Enqueue(ctx, m)
			return errors.Join(err, errUndo)
		}), pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := w.s.In(tx).Enqueue(ctx, m)
			return err
		}))
		if errors.Is(err, errUndo) {
			err = nil
		}
	default:
		_, err = w.s.In(tx).Enqueue(ctx, m)
	}
	return err
}

var errUndo = errors.New("undo")

// prepared commits in two phases.
func (w *world) prepared(ctx context.Context, tx pgx.Tx, r *rand.Rand) error {
	name := fmt.Sprintf("%s-%d", w.schema, r.Uint64())
	if _, err := tx.Exec(ctx, "PREPARE TRANSACTION '"+name+"'"); err != nil {
		return err
	}
	pause(r, 2, 100)
	_, err := w.pool.Exec(ctx, "COMMIT PREPARED '"+name+"'")
	return err
}

// pause waits up to so many milliseconds, one time in so many.
func pause(r *rand.Rand, oneIn, ms int) {
	if r.IntN(oneIn) == 0 {
		<-time.After(time.Duration(r.IntN(ms*1000)) * time.Microsecond)
	}
}

// torment keeps three dispatchers, and kills, pauses and replaces them.
func (w *world) torment(ctx context.Context, c childConfig, r *rand.Rand) {
	var children []*exec.Cmd
	for ctx.Err() == nil {
		for len(children) < 3 {
			children = append(children, startChild(w.t, c)) //nolint:contextcheck // lives as long as the test
		}
		pause(r, 1, 1500)
		i := r.IntN(len(children))
		victim := children[i]
		switch r.IntN(4) {
		case 0:
			w.killed++
			kill(victim)
			children = append(children[:i], children[i+1:]...)
		case 1, 2:
			w.paused++
			_ = victim.Process.Signal(syscall.SIGSTOP)
			<-time.After(c.TTL + time.Duration(r.IntN(1000))*time.Millisecond)
			_ = victim.Process.Signal(syscall.SIGCONT)
		default:
			w.stopped++
			_ = victim.Process.Signal(syscall.SIGTERM)
			_ = victim.Wait()
			children = append(children[:i], children[i+1:]...)
		}
	}
	for _, child := range children {
		kill(child)
	}
}

func (w *world) awaitEmpty() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for pending := -1; pending != 0; {
		pending = queryOne[int](w.t, w.s, `SELECT count(*) FROM {outbox} WHERE published_at IS NULL`)
		select {
		case <-ctx.Done():
			w.t.Fatalf("%d events were not published within a minute", pending)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *world) committed() map[int]int {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), w.s.SQL(`SELECT id, n FROM {outbox_business} WHERE n > 0`))
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[int]int{}
	var id, n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error { counts[id] = n; return nil }); err != nil {
		w.t.Fatal(err)
	}
	return counts
}
