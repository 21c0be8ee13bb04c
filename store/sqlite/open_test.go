package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

// pool is a *sql.DB as an application would make one.
func pool(t *testing.T, dsn string, conns int) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(conns)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestOpenSetsConnectionsUp(t *testing.T) {
	t.Parallel()
	s := open(t)
	var journal string
	if err := s.DB().QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&journal); err != nil || journal != "wal" {
		t.Errorf("journal mode %q, %v", journal, err)
	}
	if n := queryInt(t, s, "PRAGMA synchronous"); n != 2 {
		t.Errorf("synchronous %d, want 2 (full)", n)
	}
	if n := queryInt(t, s, "PRAGMA busy_timeout"); n != 10_000 {
		t.Errorf("busy timeout %d", n)
	}
	if n := s.DB().Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d writing connections", n)
	}
	if _, err := sqlite.New(s.DB(), sqlite.Config{}); err != nil {
		t.Errorf("New refuses what Open made: %v", err)
	}
}

func TestOpenFileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain.db", "with space & ?#%41 é.db"} {
		path := filepath.Join(t.TempDir(), name)
		openFile(t, path)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	path := filepath.Join(t.TempDir(), "uri.db")
	s := openFile(t, "file:"+path+"?_pragma=cache_size(-1234)")
	if n := queryInt(t, s, "PRAGMA cache_size"); n != -1234 {
		t.Errorf("the URI's own parameter is lost: cache size %d", n)
	}
	if n := queryInt(t, s, "PRAGMA synchronous"); n != 2 {
		t.Errorf("ours is lost: synchronous %d", n)
	}
}

func TestOpenFaults(t *testing.T) {
	t.Parallel()
	_, err := sqlite.Open(t.Context(), sqlite.Config{Table: "sqlite_outbox", Payload: "xml"})
	for _, path := range []string{"Path", "Table", "Payload"} {
		if err == nil || !strings.Contains(err.Error(), path+": ") {
			t.Errorf("%s is not in %v", path, err)
		}
	}
	var field *core.FieldError
	if !errors.As(err, &field) {
		t.Errorf("no *core.FieldError in %v", err)
	}
	missing := filepath.Join(t.TempDir(), "no", "such", "folder.db")
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: missing})
	if err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a folder that is missing: %v", err)
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: ":memory:"}); err == nil {
		t.Error("a database in memory was opened")
	}
}

func TestNewChecksThePool(t *testing.T) {
	t.Parallel()
	const good = "?_txlock=immediate&_busy_timeout=1000&_journal_mode=WAL"
	for _, c := range []struct {
		name, dsn string
		conns     int
		want      []string // parts of the error; none for no error
	}{
		{"good", good, 0, nil},
		{"deferred", "?_busy_timeout=1000&_journal_mode=WAL", 0, []string{"_txlock=immediate"}},
		{"rollback journal", "?_txlock=immediate&_busy_timeout=1000", 0, []string{"_journal_mode=WAL"}},
		{"no timeout", "?_txlock=immediate&_journal_mode=WAL", 0, []string{"_busy_timeout=10000"}},
		{"nothing set", "", 0, []string{"_txlock=immediate", "_journal_mode=WAL", "_busy_timeout=10000"}},
	} {
		db := pool(t, "file:"+filepath.Join(t.TempDir(), "app.db")+c.dsn, c.conns)
		_, err := sqlite.New(db, sqlite.Config{})
		if len(c.want) == 0 && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: no advice %q in %v", c.name, part, err)
			}
		}
	}
	if _, err := sqlite.New(pool(t, "file::memory:?_txlock=immediate", 2), sqlite.Config{}); err == nil {
		t.Error("a pool of separate databases in memory was accepted")
	}
	if _, err := sqlite.New(nil, sqlite.Config{}); err == nil {
		t.Error("a nil pool was accepted")
	}
}

func TestNewInMemory(t *testing.T) {
	t.Parallel()
	db := pool(t, "file::memory:?_txlock=immediate", 1)
	s, err := sqlite.New(db, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, numbered(3)...)
	equal(t, "events", join(t, s, "m1").drain(), []string{"e1", "e2", "e3"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("Close closed the caller's pool: %v", err)
	}
}

// Several processes start at once on a file that does not exist.
func TestConcurrentStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	var wg sync.WaitGroup
	steps := make(chan int, 8)
	for range cap(steps) {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = s.Close() }()
			taken, err := s.Migrate(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			steps <- len(taken)
		})
	}
	wg.Wait()
	close(steps)
	total := 0
	for n := range steps {
		total += n
	}
	if total != 1 {
		t.Errorf("the migration ran %d times", total)
	}
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	s := open(t)
	version := func(want int) {
		t.Helper()
		if got, err := s.SchemaVersion(t.Context()); err != nil || got != want {
			t.Errorf("version %d, %v; want %d", got, err, want)
		}
	}
	version(1)
	if taken, err := s.Migrate(t.Context(), 1); err != nil || len(taken) != 0 {
		t.Errorf("again: %v, %v", taken, err)
	}
	old := join(t, s, "m1")
	if taken, err := s.Migrate(t.Context(), 0); err != nil || len(taken) != 1 {
		t.Errorf("down: %v, %v", taken, err)
	}
	version(0)
	if n := queryInt(t, s, `SELECT count(*) FROM sqlite_schema WHERE name LIKE 'outbox%'`); n != 0 {
		t.Errorf("%d things left", n)
	}
	if _, err := s.Migrate(t.Context(), 2); err == nil {
		t.Error("migrated to a version that does not exist")
	}
	if _, err := s.Migrate(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if !old.fetch().Refused {
		t.Error("a lease of the dropped table is valid for the new one")
	}
	if n := queryInt(t, s, `SELECT epoch FROM outbox_lanes`); n < 1_700_000_000_000 {
		t.Errorf("the epochs begin with %d again, want the time", n)
	}
	enqueue(t, s, numbered(1)...)
	equal(t, "events", join(t, s, "m1").drain(), []string{"e1"})
}

func TestNotMigrated(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "outbox.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	m := &member{t: t, store: s, name: "m1", lease: core.Lease{Epoch: 1}}
	_, leaseErr := s.Lease(t.Context(), core.LeaseRequest{Member: "m1", Want: []int{0}})
	_, fetchErr := s.Fetch(t.Context(), m.request())
	_, settleErr := s.Settle(t.Context(), m.settlement(core.StatusPublished, &core.Record{}))
	_, requeueErr := s.Requeue(t.Context(), "e1")
	enqueueErr := tryEnqueue(t.Context(), s, message("a", "e1"))
	for call, err := range map[string]error{
		"lease": leaseErr, "fetch": fetchErr, "settle": settleErr, "requeue": requeueErr, "enqueue": enqueueErr,
	} {
		if !errors.Is(err, core.ErrNotMigrated) || !strings.Contains(err.Error(), "outbox migrate up") {
			t.Errorf("%s: %v", call, err)
		}
	}
	if _, err := s.Migrate(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, numbered(1)...) // without a restart
	equal(t, "events", join(t, s, "m1").drain(), []string{"e1"})
}
