package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a logger for stores whose warnings are expected.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open returns a migrated store on a file of its own.
func open(t testing.TB, change ...func(*sqlite.Config)) *sqlite.Store {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "outbox.db"), change...)
}

// openFile returns a migrated store on the file, as another process would have one.
func openFile(t testing.TB, path string, change ...func(*sqlite.Config)) *sqlite.Store {
	t.Helper()
	cfg := sqlite.Config{Path: path, Logger: quiet()}
	for _, c := range change {
		c(&cfg)
	}
	s, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Migrate(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return s
}

func message(aggregate, event string) core.Message {
	return core.Message{
		EventID: event, AggregateType: "order", AggregateID: aggregate, EventType: "order.created", Payload: []byte(`{}`),
	}
}

func enqueue(t testing.TB, s *sqlite.Store, messages ...core.Message) {
	t.Helper()
	if err := tryEnqueue(t.Context(), s, messages...); err != nil {
		t.Fatal(err)
	}
}

func tryEnqueue(ctx context.Context, s *sqlite.Store, messages ...core.Message) error {
	return s.InTx(ctx, func(_ *sql.Tx, box core.Enqueuer) error {
		_, err := box.Enqueue(ctx, messages...)
		return err
	})
}

func exec(t testing.TB, s *sqlite.Store, query string, args ...any) {
	t.Helper()
	if _, err := s.DB().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func queryInt(t testing.TB, s *sqlite.Store, query string, args ...any) (n int) {
	t.Helper()
	if err := s.DB().QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// member is a dispatcher reduced to its calls of the store.
type member struct {
	t     testing.TB
	store *sqlite.Store
	name  string
	lease core.Lease
}

// join makes a member that holds the lane.
func join(t testing.TB, s *sqlite.Store, name string) *member {
	t.Helper()
	m := &member{t: t, store: s, name: name}
	leases, err := s.Lease(t.Context(), core.LeaseRequest{Member: name, TTL: time.Hour, Want: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Held) != 1 {
		t.Fatalf("%s holds %v, want the lane", name, leases.Held)
	}
	m.lease = leases.Held[0]
	return m
}

// request is a fetch with wide limits.
func (m *member) request(change ...func(*core.LaneFetch)) core.FetchRequest {
	lane := core.LaneFetch{Lease: m.lease}
	for _, c := range change {
		c(&lane)
	}
	return core.FetchRequest{Member: m.name, Lanes: []core.LaneFetch{lane}, MaxRecords: 1000, MaxBytes: 1 << 20}
}

func (m *member) fetch(change ...func(*core.LaneFetch)) core.LaneBatch {
	m.t.Helper()
	return m.do(m.request(change...))
}

func (m *member) do(req core.FetchRequest) core.LaneBatch {
	m.t.Helper()
	batch, err := m.store.Fetch(m.t.Context(), req)
	if err != nil {
		m.t.Fatal(err)
	}
	return batch.Lanes[0]
}

func (m *member) settle(status core.Status, records ...*core.Record) core.Settled {
	m.t.Helper()
	settled, err := m.store.Settle(m.t.Context(), m.settlement(status, records...))
	if err != nil {
		m.t.Fatal(err)
	}
	return settled
}

func (m *member) settlement(status core.Status, records ...*core.Record) core.Settlement {
	req := core.Settlement{Member: m.name, Leases: []core.Lease{m.lease}}
	for _, r := range records {
		item := core.SettleItem{Record: r, Status: status}
		if status != core.StatusPublished {
			item.Attempts, item.Reason, item.RetryIn = r.Attempts+1, "the broker said no", time.Minute
		}
		req.Items = append(req.Items, item)
	}
	return req
}

// fromStart asks for everything again.
func fromStart(l *core.LaneFetch) { l.RewindFrom = 1 }

// drain publishes until nothing is left, whatever was fetched before, and returns the event ids in order.
func (m *member) drain() (events []string) {
	m.t.Helper()
	for {
		batch := m.fetch(fromStart)
		if len(batch.Records) == 0 && batch.UpTo == core.EverythingAbove {
			return events
		}
		events = append(events, eventIDs(batch.Records)...)
		if got := m.settle(core.StatusPublished, batch.Records...); len(got.Refused)+len(got.Missed) > 0 {
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

func ids(records []*core.Record) (ids []int64) {
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

// numbered returns messages e1 to en, each of its own aggregate.
func numbered(n int) (messages []core.Message) {
	for i := 1; i <= n; i++ {
		messages = append(messages, message(fmt.Sprintf("a%d", i), fmt.Sprintf("e%d", i)))
	}
	return messages
}

func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// within ends with the test, or earlier when something hangs.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
