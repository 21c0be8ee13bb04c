package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
	"github.com/go-outbox/outbox/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(sqlite.Config{}))
}

// TestConformanceOfSettings leaves out the load, which is the same for all settings.
func TestConformanceOfSettings(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqlite.Config{
		"bytes":  {Payload: sqlite.Bytes, Table: "events"},
		"delete": {AfterPublish: sqlite.Delete},
	} {
		for _, c := range storetest.Cases() {
			if strings.HasPrefix(c.Name, "Concurrency/") {
				continue
			}
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, harness(cfg))
			})
		}
	}
}

func harness(cfg sqlite.Config) storetest.Harness {
	cfg.Synchronous, cfg.Logger = sqlite.Normal, quiet() // the tests cut no power
	cfg = cfg.WithDefaults()
	return storetest.Harness{
		Lanes:             1,
		Patience:          30 * time.Second, // the race detector makes every statement about 15 times slower
		OneWriter:         true,
		JSONOnly:          cfg.Payload == sqlite.JSON,
		DeletesPublished:  cfg.AfterPublish == sqlite.Delete,
		Waker:             true,
		Migrator:          true,
		FingerprintKeeper: true,
		DeadLetters:       true,
		Tables:            func(t testing.TB) storetest.Tables { return newTables(t, cfg, 1).tables() },
		Unmigrated:        func(t testing.TB) storetest.Tables { return newTables(t, cfg, 0).tables() },
	}
}

// kitTables is one file of the conformance kit.
type kitTables struct {
	cfg   sqlite.Config
	admin *sqlite.Store
}

func newTables(t testing.TB, cfg sqlite.Config, version int) *kitTables {
	t.Helper()
	cfg.Path = filepath.Join(t.TempDir(), "outbox.db")
	k := &kitTables{cfg: cfg}
	k.admin = k.open(t)
	if _, err := k.admin.Migrate(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kitTables) open(t testing.TB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), k.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// exec runs a query written for the table "outbox".
func (k *kitTables) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	exec(t, k.admin, sqlite.Named(k.cfg.Table, query), args...)
}

func (k *kitTables) tables() storetest.Tables {
	return storetest.Tables{
		Store: func(t testing.TB) core.Store { t.Helper(); return k.open(t) },
		Begin: k.begin,
		Row:   k.row,
		Requeue: func(t testing.TB, eventIDs ...string) {
			t.Helper()
			if _, err := k.admin.Requeue(t.Context(), eventIDs...); err != nil {
				t.Fatal(err)
			}
		},
		Delete: func(t testing.TB, eventIDs ...string) {
			t.Helper()
			for _, id := range eventIDs {
				k.exec(t, `DELETE FROM "outbox" WHERE event_id = ?`, id)
			}
		},
		Expire: func(t testing.TB, member string) {
			t.Helper()
			k.exec(t, `UPDATE "outbox_members" SET expires_at = 1 WHERE member = ?`, member)
			k.exec(t, `UPDATE "outbox_lanes" SET expires_at = 1 WHERE owner = ?`, member)
		},
		Purge: func(ctx context.Context) error {
			_, err := k.admin.Purge(ctx, 0, 0)
			return err
		},
	}
}

func (k *kitTables) begin(ctx context.Context) (storetest.Tx, error) {
	tx, err := k.admin.DB().BeginTx(ctx, nil)
	if err != nil {
		return storetest.Tx{}, err
	}
	return storetest.Tx{Enqueuer: k.admin.In(tx), Commit: tx.Commit, Rollback: tx.Rollback}, nil
}

func (k *kitTables) row(t testing.TB, eventID string) (row storetest.Row, found bool) {
	t.Helper()
	query := sqlite.Named(k.cfg.Table, `SELECT
		CASE WHEN discarded_at IS NOT NULL THEN 'discarded' WHEN dlq <> 0 THEN 'parked'
			WHEN published_at IS NOT NULL THEN 'published' WHEN next_attempt_at = 9223372036854775807 THEN 'blocked'
			ELSE 'pending' END,
		attempt_count, ifnull(last_error, '') FROM "outbox" WHERE event_id = ?`)
	err := k.admin.DB().QueryRowContext(t.Context(), query, eventID).Scan(&row.State, &row.Attempts, &row.Reason)
	if errors.Is(err, sql.ErrNoRows) {
		return row, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return row, true
}
