package adapters

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
	"github.com/go-outbox/outbox/store/sqlite"
)

// Store is a store's URL, understood and found valid; nothing is opened yet.
type Store struct {
	// Remote says that the store is a server, which may come up later than we do.
	Remote bool
	// Open opens the store.
	Open func(context.Context, *slog.Logger) (core.Store, error)
	// Migrations returns the steps of its schema without a database, or [ErrNoMigrations].
	Migrations func() ([]core.Migration, error)
}

// ParseStore reads a store's URL. Its error names all faults and no secret.
func ParseStore(raw string) (Store, error) {
	scheme, err := schemeOf(raw, storeForms)
	if err != nil {
		return Store{}, err
	}
	switch scheme {
	case "sqlite":
		return parseSQLite(raw)
	case "postgres", "postgresql":
		return parsePostgres(raw)
	case "memory":
		return Store{
			Open: func(_ context.Context, log *slog.Logger) (core.Store, error) {
				log.Warn("the store is in memory: it is empty, and nobody can write to it")
				return memstore.New(memstore.Config{})
			},
			Migrations: func() ([]core.Migration, error) { return nil, ErrNoMigrations },
		}, nil
	default:
		return Store{}, unknownScheme(scheme, storeForms)
	}
}

func parseSQLite(raw string) (Store, error) {
	cfg, err := sqlite.ParseURL(raw)
	if err != nil {
		return Store{}, err
	}
	return Store{
		Open: func(ctx context.Context, log *slog.Logger) (core.Store, error) {
			cfg := cfg
			cfg.Logger = log
			return sqlite.Open(ctx, cfg)
		},
		Migrations: func() ([]core.Migration, error) {
			db, err := sql.Open("sqlite", "file::memory:?_txlock=immediate")
			if err != nil {
				return nil, err
			}
			defer func() { _ = db.Close() }() // an empty database in memory
			db.SetMaxOpenConns(1)
			store, err := sqlite.New(db, cfg)
			if err != nil {
				return nil, err
			}
			return store.Migrations(), nil
		},
	}, nil
}
