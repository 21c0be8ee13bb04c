package main_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRunOnceMovesRowsWrittenBySQL(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	_, kafka := startKafka(t)
	outbox(t, "migrate", "up", "--store", shop.url())
	shop.insert(t, 100, 7)
	got := outbox(t, "run", "--once", "--store", shop.url(), "--broker", kafka)
	if got.code != 0 || !strings.Contains(got.errOut, `"published":100`) {
		t.Errorf("got %+v; want code 0 and 100 published", got)
	}
	if n := shop.pending(t); n != 0 {
		t.Errorf("%d rows are pending", n)
	}
	checkOrder(t, kafka, 100)
}

func TestRunFromTheEnvironment(t *testing.T) {
	shop := newShop(t)
	_, kafka := startKafka(t)
	t.Setenv("OUTBOX_STORE", shop.url())
	t.Setenv("OUTBOX_BROKER", kafka)
	outbox(t, "migrate", "up")
	shop.insert(t, 3, 3)
	if got := outbox(t, "run", "--once"); got.code != 0 || shop.pending(t) != 0 {
		t.Errorf("got %+v with %d rows pending; want code 0 and none", got, shop.pending(t))
	}
}

func TestRunNamesAllFaultsAndNoSecret(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"nothing given", nil, []string{"--store", "sqlite:FILE", "--broker", "kafka://HOST:PORT"}},
		{
			"everything wrong",
			[]string{
				"--store", "oracle://app:hunter2@db/shop", "--broker", "kafka://app:hunter2@kafka:9092?colour=red&acks=some",
				"--max-attempts=-1", "--lease-ttl", "1ms", "--fetch-size=-5",
			},
			[]string{`"oracle"`, "sqlite:FILE", "colour", "acks", "--max-attempts", "--lease-ttl", "--fetch-size"},
		},
		{"no scheme", []string{"--store", "hunter2", "--broker", "hunter2"}, []string{"--store", "--broker", "not a URL"}},
		{"not a URL", []string{"--store", "sqlite:%zz", "--broker", "kafka://app:hunter2%zz@kafka"}, []string{"--store", "--broker"}},
		{"an argument", []string{"kafka://app:hunter2@kafka"}, []string{"no arguments"}},
		{"unknown flag", []string{"--brokr", "kafka://app:hunter2@kafka"}, []string{"--brokr"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := outbox(t, append([]string{"run"}, tt.args...)...)
			if got.code != 2 || got.out != "" {
				t.Errorf("code %d, output %q; want code 2 and none", got.code, got.out)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.errOut, want) {
					t.Errorf("the message lacks %q:\n%s", want, got.errOut)
				}
			}
			if strings.Contains(got.errOut, "hunter2") {
				t.Errorf("the message shows a secret:\n%s", got.errOut)
			}
		})
	}
}

func TestRunWithoutTables(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	_, kafka := startKafka(t)
	once := outbox(t, "run", "--once", "--store", shop.url(), "--broker", kafka)
	if once.code != 1 || !strings.Contains(once.errOut, "`outbox migrate up`") {
		t.Errorf("run --once: got %+v; want code 1 and what to do", once)
	}

	p := start(t, "run", "--store", shop.url(), "--broker", kafka)
	p.waitFor(t, "`outbox migrate up`")
	outbox(t, "migrate", "up", "--store", shop.url())
	shop.insert(t, 10, 3)
	checkOrder(t, kafka, 10)
	if code := p.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM code %d, want 0", code)
	}
	if n := shop.pending(t); n != 0 {
		t.Errorf("%d rows are pending after a drain", n)
	}
}

func TestRunOutlivesAnUnreachableBroker(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	address, port := freeAddress(t)
	outbox(t, "migrate", "up", "--store", shop.url())
	shop.insert(t, 20, 3)
	p := start(t, "run", "--store", shop.url(), "--broker", "kafka://"+address)
	p.waitFor(t, "paused")
	_, kafka := startKafka(t, kfake.Ports(port))
	checkOrder(t, kafka, 20)
	p.waitFor(t, "works again")
	if code := p.end(t, syscall.SIGINT); code != 0 {
		t.Errorf("after SIGINT code %d, want 0", code)
	}
	var attempts int
	if err := shop.db.QueryRowContext(t.Context(), `SELECT sum(attempt_count) FROM outbox`).Scan(&attempts); err != nil || attempts != 0 {
		t.Errorf("an outage was charged %d attempts, error %v", attempts, err)
	}
}

// TestKillLosesNothing kills a run in the middle of its work, with messages in flight, and lets another one finish.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	const rows, aggregates = 3000, 40
	shop := newShop(t)
	cluster, kafka := startKafka(t)
	outbox(t, "migrate", "up", "--store", shop.url())
	shop.insert(t, rows, aggregates)

	var requests atomic.Int32
	var repaired atomic.Bool
	stuck := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		const before = 5 // requests that succeed
		n := requests.Add(1)
		if repaired.Load() || n <= before {
			return nil, nil, false
		}
		if n == before+1 {
			close(stuck)
		}
		return nil, errors.New("cut"), true
	})
	args := []string{"run", "--store", shop.url(), "--broker", kafka, "--fetch-size", "100", "--lease-ttl", "300ms"}
	p := start(t, args...)
	<-stuck
	if code := p.end(t, syscall.SIGKILL); code != -1 {
		t.Fatalf("exit code %d, want a death by signal", code)
	}
	if n := shop.pending(t); n == 0 || n > rows {
		t.Fatalf("%d rows are pending after the kill: it was not in the middle", n)
	}
	repaired.Store(true)
	p = start(t, args...)
	repeats := checkOrder(t, kafka, rows)
	if code := p.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM code %d, want 0", code)
	}
	if n := shop.pending(t); n != 0 {
		t.Errorf("%d rows are pending", n)
	}
	t.Logf("repeats: %d", repeats)
}

func TestTheSecondSignalAborts(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	cluster, kafka := startKafka(t)
	outbox(t, "migrate", "up", "--store", shop.url())
	shop.insert(t, 1, 1)
	caught := make(chan struct{}, 1)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case caught <- struct{}{}:
		default:
		}
		return nil, nil, true // no answer, ever
	})
	p := start(t, "run", "--store", shop.url(), "--broker", kafka)
	<-caught
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.waitFor(t, "a second signal aborts")
	if code := p.end(t, syscall.SIGTERM); code != 130 {
		t.Errorf("code %d, want 130", code)
	}
	if n := shop.pending(t); n != 1 {
		t.Errorf("%d rows are pending, want the one in flight", n)
	}
}

// checkOrder consumes n events and checks that each aggregate's came first in the order of their rows.
func checkOrder(t *testing.T, kafka string, n int) (repeats int) {
	t.Helper()
	numbers, repeats := consume(t, kafka, n)
	for aggregate, sequence := range numbers {
		if !slices.IsSorted(sequence) {
			t.Errorf("events of %s came as %v", aggregate, sequence)
		}
	}
	return repeats
}

// TestRunOnPostgres lets the program start before its database can be reached.
func TestRunOnPostgres(t *testing.T) {
	t.Parallel()
	direct, server := realPostgres(t)
	_, kafka := startKafka(t)
	address, port := freeAddress(t)
	table := "cmd_test_" + strings.ToLower(rand.Text()[:8])
	proxied := strings.Replace(direct, server, address, 1)
	withTable := func(url string) string {
		if strings.Contains(url, "?") {
			return url + "&table=" + table
		}
		return url + "?table=" + table
	}
	if got := outbox(t, "run", "--once", "--store", withTable(proxied), "--broker", kafka); got.code != 1 {
		t.Errorf("run --once without a database: got %+v; want code 1", got)
	}
	early := start(t, "run", "--store", withTable(proxied), "--broker", kafka)
	early.waitFor(t, "fails, trying again")
	if code := early.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM while waiting: code %d, want 0", code)
	}

	p := start(t, "run", "--store", withTable(proxied), "--broker", kafka)
	p.waitFor(t, "fails, trying again")
	forward(t, port, server)
	p.waitFor(t, "`outbox migrate up`")
	outbox(t, "migrate", "up", "--store", withTable(direct))
	t.Cleanup(func() { outbox(t, "migrate", "down", "--to", "0", "--yes", "--store", withTable(direct)) })
	db, err := sql.Open("pgx", direct)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	const rows, aggregates = 200, 9
	if _, err := db.ExecContext(t.Context(), `INSERT INTO `+table+` (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'ord_' || i % $1, 'order.changed', jsonb_build_object('number', i)
		FROM generate_series(0, $2 - 1) AS i`, aggregates, rows); err != nil {
		t.Fatal(err)
	}
	checkOrder(t, kafka, rows)
	if code := p.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM code %d, want 0", code)
	}
	var pending int
	query := `SELECT count(*) FROM ` + table + ` WHERE published_at IS NULL`
	if err := db.QueryRowContext(t.Context(), query).Scan(&pending); err != nil || pending != 0 {
		t.Errorf("%d rows are pending, error %v", pending, err)
	}
}
