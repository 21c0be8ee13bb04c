package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
	"github.com/go-outbox/outbox/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]postgres.Config{
		"default": {},
		"json":    {Payload: postgres.JSON, Lanes: 7, StrictOrder: true},
		"bytes":   {Payload: postgres.Bytes, Table: `odd "name" 'here' \`, Lanes: 1},
		"delete":  {AfterPublish: postgres.Delete, Lanes: 16},
		"archive": {AfterPublish: postgres.Archive, Lanes: 16},
		"months":  {Partitioned: true, Lanes: 16, StrictOrder: true, Table: `odd "name" 'here' \`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.DSN, cfg.Logger = serverURL(t), quiet()
			storetest.Run(t, harness(cfg))
		})
	}
}

func harness(cfg postgres.Config) storetest.Harness {
	cfg = cfg.WithDefaults()
	return storetest.Harness{
		Lanes:             cfg.Lanes,
		JSONOnly:          cfg.Payload != postgres.Bytes,
		DeletesPublished:  cfg.AfterPublish != postgres.Mark,
		Waker:             true,
		Migrator:          true,
		FingerprintKeeper: true,
		DeadLetters:       true,
		Tables: func(t testing.TB) storetest.Tables {
			t.Helper()
			k := newTables(t, cfg)
			migrate(t, k.admin)
			return k.tables()
		},
		Unmigrated: func(t testing.TB) storetest.Tables { t.Helper(); return newTables(t, cfg).tables() },
	}
}

// kitTables is one schema of the conformance kit.
type kitTables struct {
	cfg   postgres.Config
	admin *postgres.Store
}

func newTables(t testing.TB, cfg postgres.Config) *kitTables {
	t.Helper()
	cfg.Schema = newSchema(t)
	admin, err := postgres.New(adminPool(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	return &kitTables{cfg: cfg, admin: admin}
}

func (k *kitTables) tables() storetest.Tables {
	return storetest.Tables{
		Store: func(t testing.TB) core.Store {
			t.Helper()
			s, err := postgres.Open(t.Context(), k.cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
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
			execSQL(t, k.admin, `DELETE FROM {outbox} WHERE event_id = ANY ($1::text[])`, eventIDs)
		},
		Expire: func(t testing.TB, member string) {
			t.Helper()
			execSQL(t, k.admin, `UPDATE {outbox_members} SET expires_at = now() WHERE member = $1`, member)
		},
		Purge: func(ctx context.Context) error {
			_, err := k.admin.Purge(ctx, 0, 0)
			return err
		},
	}
}

func (k *kitTables) begin(ctx context.Context) (storetest.Tx, error) {
	tx, err := k.admin.Pool().Begin(ctx)
	if err != nil {
		return storetest.Tx{}, err
	}
	return storetest.Tx{
		Enqueuer: k.admin.In(tx),
		Commit:   func() error { return tx.Commit(ctx) },
		Rollback: func() error { return tx.Rollback(context.WithoutCancel(ctx)) },
	}, nil
}

func (k *kitTables) row(t testing.TB, eventID string) (row storetest.Row, found bool) {
	t.Helper()
	query := k.admin.SQL(`SELECT
		CASE WHEN discarded_at IS NOT NULL THEN 'discarded' WHEN dlq THEN 'parked'
			WHEN published_at IS NOT NULL THEN 'published' WHEN next_attempt_at = 'infinity' THEN 'blocked' ELSE 'pending' END,
		attempt_count, coalesce(last_error, '') FROM {outbox} WHERE event_id = $1`)
	err := k.admin.Pool().QueryRow(t.Context(), query, eventID).Scan(&row.State, &row.Attempts, &row.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return row, true
}
