package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// The server turns read-only under open connections, as after a role switch, and back.
func TestField_099_ReadOnlyServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	migrate(t, s)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	enqueue(t, s, message("a", "e1"))
	r.await("e1 is settled", func() bool {
		return queryOne[int](t, s, `SELECT count(*) FROM {outbox} WHERE published_at IS NOT NULL`) == 1
	})
	conn := connect(t, c.url())
	set := func(value string) {
		t.Helper()
		for _, statement := range []string{
			`ALTER SYSTEM SET default_transaction_read_only = ` + value, `SELECT pg_reload_conf()`,
		} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	set("on")
	other := connect(t, c.url())
	tx, err := other.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadWrite})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.In(tx).Enqueue(t.Context(), message("a", "e2")); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	r.fetches(10)
	set("off")
	r.await("e2 is settled", func() bool {
		return queryOne[int](t, s, `SELECT count(*) FROM {outbox} WHERE published_at IS NOT NULL`) == 2
	})
	if got := delivered(b); got[0] != "e1" || got[len(got)-1] != "e2" {
		t.Errorf("delivered %v", got)
	}
}

// What fails at the commit leaves no connection behind in a broken transaction. (A statement timeout cannot strike there
// with the extended protocol; a deferred trigger can.)
func TestField_100_FailureAtCommit(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *postgres.Config) { c.DSN += "&pool_max_conns=2" })
	execSQL(t, s, `CREATE FUNCTION {outbox_bad}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$`)
	execSQL(t, s, `CREATE CONSTRAINT TRIGGER bad AFTER UPDATE ON {outbox} DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION {outbox_bad}()`)
	enqueue(t, s, numbered(2)...)
	m := join(t, s, "m")
	records := m.fetch()
	for range 3 {
		_, err := s.Settle(t.Context(), m.settlement(core.StatusPublished, records...))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Message != "not now" {
			t.Fatalf("want the trigger's error, got %v", err)
		}
	}
	execSQL(t, s, `DROP TRIGGER bad ON {outbox}`)
	if got := m.settle(core.StatusPublished, records...); len(got.Missed)+len(got.Refused) > 0 {
		t.Errorf("settle after the failures: %+v", got)
	}
}

// The listening connection dies, or goes dead without a word. It is made again.
func TestField_101_ListenerIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	proxy := newProxy(t, c.port)
	s := openConfig(t, postgres.Config{DSN: proxy.url(), Logger: quiet()})
	s.SetPing(50*time.Millisecond, 200*time.Millisecond)
	migrate(t, s)
	for _, what := range []string{"terminated", "black hole"} {
		ended := asleep(t, s)
		plain := connect(t, c.url())
		if what == "terminated" {
			_, err := plain.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE query LIKE 'LISTEN%' OR query LIKE '-- ping%'`)
			if err != nil {
				t.Fatal(err)
			}
		} else {
			proxy.freeze()
		}
		ctx := within(t)
		for s.Listening() && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: nobody noticed that the connection is gone", what)
		}
		proxy.thaw()
		s.Nudge()
		wantEnd(t, ended, "nudged")
		ended = asleep(t, s)
		if _, err := plain.Exec(t.Context(), s.SQL(plainInsert)); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ended, "a row was inserted after the listener was "+what)
	}
}

// Behind a pooler in transaction mode nothing needs a session.
func TestField_102_TransactionPooler(t *testing.T) {
	t.Parallel()
	s := open(t)
	url := pgbouncer(t)
	b := membroker.New(membroker.Config{})
	var first *running
	for range 2 {
		cfg := s.Config()
		cfg.DSN = url
		pooled := openConfig(t, cfg)
		first = dispatch(t, pooled, b)
		for n := range 500 {
			enqueue(t, pooled, message(fmt.Sprint("a", n%20), fmt.Sprintf("%p.%d", first, n)))
		}
		if !pooled.PoolerFound() {
			t.Error("the pooler was not noticed")
		}
	}
	first.await("all are delivered", func() bool { return len(delivered(b)) >= 1000 })
	if n := queryOne[int](t, s, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0`); n > 0 {
		t.Errorf("%d advisory locks are left behind", n)
	}
}

// pgbouncer starts one in transaction mode, with few server connections so that clients share them.
func pgbouncer(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // not in everybody's PATH
		if _, err := os.Stat(program); err != nil {
			if required() {
				t.Fatal("OUTBOX_REQUIRE names postgres, but there is no pgbouncer")
			}
			t.Skip("no pgbouncer")
		}
	}
	server, err := pgx.ParseConfig(serverURL(t))
	if err != nil {
		t.Fatal(err)
	}
	port, dir := freePort(t), t.TempDir()
	users := filepath.Join(dir, "users")
	config := fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
auth_file = %s
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`, server.Host, server.Port, port, users)
	for name, text := range map[string]string{users: `"postgres" ""`, filepath.Join(dir, "ini"): strings.ReplaceAll(config, "* = ", "outbox = user=postgres ")} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{program, filepath.Join(dir, "ini")}
	if os.Geteuid() == 0 {
		for parent := dir; len(parent) > len(os.TempDir()); parent = filepath.Dir(parent) {
			if err := os.Chmod(parent, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		args = append([]string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"}, args...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/outbox?sslmode=disable", port)
	ctx := within(t)
	for {
		conn, err := pgx.Connect(ctx, url+"&default_query_exec_mode=exec")
		if err == nil {
			_ = conn.Close(ctx)
			return url
		}
		select {
		case <-ctx.Done():
			t.Fatalf("pgbouncer: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A snapshot that stays open keeps all dead rows. A fetch does not meet them, as it reads from the mark.
func TestField_111_OldSnapshot(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, 100)
	old, err := s.Pool().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Rollback(context.Background()) })
	if _, err := old.Exec(t.Context(), s.SQL(`SELECT count(*) FROM {outbox}`)); err != nil {
		t.Fatal(err)
	}
	m := join(t, s, "m")
	for range 10 {
		execSQL(t, s, `INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'order', 'ord_' || g, 'x', '{}' FROM generate_series(1, 2000) g`)
		m.drain()
	}
	execSQL(t, s, `ANALYZE {outbox}`)
	if _, err := s.Pool().Exec(t.Context(), s.SQL(`VACUUM {outbox}`)); err != nil {
		t.Fatal(err)
	}
	last := queryOne[int64](t, s, `SELECT max(id) FROM {outbox}`)
	for ctx := within(t); s.LowestMark() < last; m.fetch() {
		if ctx.Err() != nil {
			t.Fatalf("the mark stays at %d of %d", s.LowestMark(), last)
		}
	}
	wantBuffers(t, explain(t, s, true, s.RowsSQL(), rowsArgs(last, last)...), 400)
}

// wantBuffers bounds how many pages a query touched.
func wantBuffers(t *testing.T, plan string, most int) {
	t.Helper()
	for line := range strings.Lines(plan) {
		var hit int
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "Buffers: shared hit=%d", &hit); err == nil {
			if hit > most {
				t.Errorf("%d pages were read, want at most %d:\n%s", hit, most, plan)
			}
			return
		}
	}
}

// Rows that are parked, and rows that wait for next year, are not read again and again.
func TestField_112_ManyRowsThatAreNotDue(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, 20_000)
	execSQL(t, s, `UPDATE {outbox} SET dlq = id % 2 = 0, next_attempt_at = CASE WHEN id % 2 = 1 THEN now() + interval '1 year' END`)
	execSQL(t, s, `VACUUM ANALYZE {outbox}`)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	for n := range 10 {
		enqueue(t, s, message(fmt.Sprint("due", n), fmt.Sprint("e", n)))
	}
	r.await("the 10 that are due are delivered", func() bool { return len(delivered(b)) == 10 })
	last := queryOne[int64](t, s, `SELECT max(id) FROM {outbox}`)
	r.await("the mark is past the waiting ones", func() bool { return s.LowestMark() == last })
	wantBuffers(t, explain(t, s, true, s.RowsSQL(), rowsArgs(last, last)...), 400)
}

// A notification carries no payload, whose size could break the insert.
func TestField_118_LargeEventsWhileSomebodySleeps(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	migrate(t, s)
	execSQL(t, s, `INSERT INTO {outbox_sleepers} VALUES ('somebody', now() + interval '1 hour')`)
	listener := connect(t, c.url())
	channel := queryOne[string](t, s, `SELECT substring(prosrc FROM 'pg_notify\(''([^'']+)''') FROM pg_proc WHERE proname = 'outbox_wake'`)
	if _, err := listener.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{7_999, 8_000, 9_000, 1 << 20} {
		m := message("a", fmt.Sprint("e", i))
		m.Payload = []byte(`"` + strings.Repeat("x", size) + `"`)
		m.Topic = strings.Repeat("t", core.MaxTopicBytes)
		enqueue(t, s, m)
		n, err := listener.WaitForNotification(within(t))
		if err != nil || n.Payload != "" {
			t.Errorf("%d bytes: notification %+v, %v", size, n, err)
		}
	}
}

// Without tables a dispatcher says so, is not ready, and works as soon as they are there.
func TestField_174_TablesComeLater(t *testing.T) {
	t.Parallel()
	s := openConfig(t, postgres.Config{DSN: serverURL(t), Schema: newSchema(t), Logger: quiet()})
	_, err := s.Lease(t.Context(), core.LeaseRequest{Member: "m", TTL: time.Second})
	if !errors.Is(err, core.ErrNotMigrated) || !strings.Contains(err.Error(), "migrate") {
		t.Errorf("want core.ErrNotMigrated with advice, got %v", err)
	}
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b, func(c *core.Config) { c.Outage.Initial, c.Outage.Max = time.Millisecond, 50*time.Millisecond })
	migrate(t, s)
	enqueue(t, s, message("a", "e1"))
	r.await("e1 is delivered", func() bool { return len(delivered(b)) == 1 })
}
