package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
	"github.com/go-outbox/outbox/store/sqlite"
)

// database is the service's own database, with the outbox in it.
type database struct {
	description string
	// store is the outbox as a dispatcher sees it.
	store core.Store
	// inTx runs a transaction with an Enqueuer that writes in it.
	inTx func(context.Context, func(*sql.Tx, core.Enqueuer) error) error
	// orders is the name of the orders table.
	orders string
	undo
}

// openDatabase opens a database and makes the outbox and the orders table in it, under names of this run.
func openDatabase(ctx context.Context, rawURL, name string) (*database, error) {
	db := &database{orders: name + "_orders"}
	var err error
	switch scheme, _, _ := strings.Cut(rawURL, ":"); scheme {
	case "", "sqlite":
		err = db.openSQLite(ctx, rawURL, name)
	case "postgres", "postgresql":
		err = db.openPostgres(ctx, rawURL, name)
	default:
		err = fmt.Errorf("-store: unknown scheme %q; known are sqlite and postgres", scheme)
	}
	if err == nil {
		err = db.makeTables(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.cleanUp())
	}
	return db, nil
}

func (db *database) openSQLite(ctx context.Context, rawURL, name string) error {
	if rawURL == "" {
		dir, err := os.MkdirTemp("", "outbox-quickstart-*")
		if err != nil {
			return err
		}
		db.later(func() error { return os.RemoveAll(dir) })
		rawURL = "sqlite://" + filepath.ToSlash(filepath.Join(dir, "shop.db"))
	}
	cfg, err := sqlite.ParseURL(rawURL)
	if err != nil {
		return err
	}
	cfg.Table = name
	store, err := sqlite.Open(ctx, cfg)
	if err != nil {
		return err
	}
	db.later(store.Close)
	db.store, db.inTx, db.description = store, store.InTx, "SQLite, "+cfg.Path
	return nil
}

func (db *database) openPostgres(ctx context.Context, rawURL, name string) error {
	store, err := postgres.Open(ctx, postgres.Config{DSN: rawURL, Table: name})
	if err != nil {
		return err
	}
	db.later(store.Close)
	pool := stdlib.OpenDBFromPool(store.Pool()) // database/sql, as for SQLite; with pgx itself it is store.InTx
	db.later(pool.Close)
	db.store = store
	db.inTx = func(ctx context.Context, work func(*sql.Tx, core.Enqueuer) error) error {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after a commit it does nothing
		if err := work(tx, store.InSQL(tx)); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		store.Nudge() // optional: the dispatcher in this process need not wait for its next poll
		return nil
	}
	address := store.Pool().Config().ConnConfig
	db.description = fmt.Sprintf("PostgreSQL, %s at %s:%d", address.Database, address.Host, address.Port)
	return nil
}

// makeTables makes the outbox and the service's own table.
func (db *database) makeTables(ctx context.Context) error {
	afterwards := context.WithoutCancel(ctx) // cleaning up has to work when the run was interrupted, too
	migrator, ok := db.store.(core.Migrator)
	if !ok {
		return errors.New("the store makes no tables")
	}
	steps := migrator.Migrations()
	if _, err := migrator.Migrate(ctx, steps[len(steps)-1].Version); err != nil {
		return err
	}
	db.later(func() error { _, err := migrator.Migrate(afterwards, 0); return err })
	if err := db.exec(ctx, `CREATE TABLE `+db.orders+` (id TEXT PRIMARY KEY, status TEXT, events TEXT)`); err != nil {
		return err
	}
	db.later(func() error { return db.exec(afterwards, `DROP TABLE `+db.orders) })
	return nil
}

func (db *database) exec(ctx context.Context, query string) error {
	return db.inTx(ctx, func(tx *sql.Tx, _ core.Enqueuer) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	})
}
