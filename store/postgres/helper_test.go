package postgres_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(childVariable); config != "" {
		runChild(config)
		return
	}
	goleak.VerifyTestMain(tests{m})
}

// tests closes what the tests share when they are over.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer closeAdmin()
	return m.M.Run()
}

// serverURL is the server of the tests; without one they are skipped, unless they are required.
func serverURL(t testing.TB) string {
	t.Helper()
	url := os.Getenv("OUTBOX_TEST_POSTGRES_URL")
	if url == "" {
		if required() {
			t.Fatal("OUTBOX_REQUIRE names postgres, but OUTBOX_TEST_POSTGRES_URL is not set")
		}
		t.Skip("OUTBOX_TEST_POSTGRES_URL is not set")
	}
	return url
}

// required reports whether a missing PostgreSQL is a failure.
func required() bool {
	return slices.Contains(strings.Split(os.Getenv("OUTBOX_REQUIRE"), ","), "postgres")
}

// admin is the pool that all tests share for what is not the store's work.
var admin struct {
	once sync.Once
	pool *pgxpool.Pool
	err  error
}

func closeAdmin() {
	if admin.pool != nil {
		admin.pool.Close()
	}
}

func adminPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	url := serverURL(t)
	admin.once.Do(func() {
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			admin.err = err
			return
		}
		cfg.MaxConns = 40
		admin.pool, admin.err = pgxpool.NewWithConfig(context.Background(), cfg)
	})
	if admin.err != nil {
		t.Fatal(admin.err)
	}
	return admin.pool
}

// pgxpoolWithoutConnecting is a pool that connects when it is used first.
func pgxpoolWithoutConnecting() (*pgxpool.Pool, error) {
	return pgxpool.New(context.Background(), "postgres://nobody@127.0.0.1:1/none")
}

// newSchema makes a schema of the test's own.
func newSchema(t testing.TB) string {
	t.Helper()
	pool := adminPool(t)
	name := "t" + strings.ToLower(rand.Text()[:12])
	if _, err := pool.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return name
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open returns a migrated store in a schema of its own.
func open(t testing.TB, change ...func(*postgres.Config)) *postgres.Store {
	t.Helper()
	cfg := postgres.Config{DSN: serverURL(t), Schema: newSchema(t), Logger: quiet()}
	for _, c := range change {
		c(&cfg)
	}
	s := openConfig(t, cfg)
	migrate(t, s)
	return s
}

func openConfig(t testing.TB, cfg postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func migrate(t testing.TB, s *postgres.Store) {
	t.Helper()
	if _, err := s.Migrate(t.Context(), len(s.Migrations())); err != nil {
		t.Fatal(err)
	}
}

func message(aggregate, event string) core.Message {
	return core.Message{
		EventID: event, AggregateType: "order", AggregateID: aggregate, EventType: "order.created", Payload: []byte(`{}`),
	}
}

func numbered(n int) (messages []core.Message) {
	for i := 1; i <= n; i++ {
		messages = append(messages, message(fmt.Sprintf("a%d", i), fmt.Sprintf("e%d", i)))
	}
	return messages
}

func enqueue(t testing.TB, s *postgres.Store, messages ...core.Message) {
	t.Helper()
	err := s.InTx(t.Context(), func(_ pgx.Tx, box core.Enqueuer) error {
		_, err := box.Enqueue(t.Context(), messages...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// execSQL runs SQL with the store's names in braces.
func execSQL(t testing.TB, s *postgres.Store, query string, args ...any) {
	t.Helper()
	if _, err := s.Pool().Exec(t.Context(), s.SQL(query), args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func queryOne[T any](t testing.TB, s *postgres.Store, query string, args ...any) (value T) {
	t.Helper()
	if err := s.Pool().QueryRow(t.Context(), s.SQL(query), args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func begin(t testing.TB, s *postgres.Store) pgx.Tx {
	t.Helper()
	tx, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// within ends with the test, or earlier when something hangs.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// member is a dispatcher reduced to its calls of the store.
type member struct {
	t      testing.TB
	store  *postgres.Store
	name   string
	leases []core.Lease
	held   []int64
}

// join makes a member that holds all lanes.
func join(t testing.TB, s *postgres.Store, name string) *member {
	t.Helper()
	m := &member{t: t, store: s, name: name}
	got, err := s.Lease(t.Context(), core.LeaseRequest{Member: name, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]int, got.Lanes)
	for i := range want {
		want[i] = i
	}
	if got, err = s.Lease(t.Context(), core.LeaseRequest{Member: name, TTL: time.Hour, Want: want}); err != nil {
		t.Fatal(err)
	}
	if len(got.Held) != got.Lanes {
		t.Fatalf("%s holds %d of %d lanes", name, len(got.Held), got.Lanes)
	}
	m.leases = got.Held
	return m
}

func (m *member) request() core.FetchRequest {
	req := core.FetchRequest{Member: m.name, MaxRecords: 1000, MaxBytes: 16 << 20}
	for _, l := range m.leases {
		req.Lanes = append(req.Lanes, core.LaneFetch{Lease: l, Held: m.held})
	}
	return req
}

// fetch returns what is new and holds it.
func (m *member) fetch() []*core.Record {
	m.t.Helper()
	records := m.do(m.request())
	for _, r := range records {
		m.held = append(m.held, r.ID)
	}
	slices.Sort(m.held)
	return records
}

func (m *member) do(req core.FetchRequest) (records []*core.Record) {
	m.t.Helper()
	batch, err := m.store.Fetch(m.t.Context(), req)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, lane := range batch.Lanes {
		if lane.Refused || lane.Reset {
			m.t.Fatalf("lane refused %t, reset %t", lane.Refused, lane.Reset)
		}
		records = append(records, lane.Records...)
	}
	return records
}

func (m *member) settlement(status core.Status, records ...*core.Record) core.Settlement {
	req := core.Settlement{Member: m.name, Leases: m.leases}
	for _, r := range records {
		item := core.SettleItem{Record: r, Status: status}
		if status != core.StatusPublished {
			item.Attempts, item.Reason, item.RetryIn = r.Attempts+1, "the broker said no", time.Minute
		}
		req.Items = append(req.Items, item)
	}
	return req
}

func (m *member) settle(status core.Status, records ...*core.Record) core.Settled {
	m.t.Helper()
	settled, err := m.store.Settle(m.t.Context(), m.settlement(status, records...))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range records {
		m.held = slices.DeleteFunc(m.held, func(id int64) bool { return id == r.ID })
	}
	return settled
}

// drain publishes until nothing comes and returns the event ids in order.
func (m *member) drain() (events []string) {
	m.t.Helper()
	for {
		records := m.fetch()
		if len(records) == 0 {
			return events
		}
		events = append(events, eventIDs(records)...)
		if got := m.settle(core.StatusPublished, records...); len(got.Refused)+len(got.Missed) > 0 {
			m.t.Fatalf("settle: %+v", got)
		}
	}
}

func eventIDs(records []*core.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, r.EventID)
	}
	return ids
}

func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
