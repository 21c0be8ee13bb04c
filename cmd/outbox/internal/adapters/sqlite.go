package adapters

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

// sqliteSettings are those of a file that we open ourselves, so that they need its path.
type sqliteSettings struct{ sqlite.Config }

// WithDefaults keeps the type.
func (s sqliteSettings) WithDefaults() sqliteSettings { return sqliteSettings{s.Config.WithDefaults()} }

// Validate wants a path too.
func (s sqliteSettings) Validate() error {
	err := s.Config.Validate()
	if s.Path == "" {
		return errors.Join(err, &core.FieldError{Path: "Path", Reason: "is missing; give the name of the database file"})
	}
	return err
}

func sqliteFromURL(url string) (sqliteSettings, error) {
	c, err := sqlite.ParseURL(url)
	return sqliteSettings{c}, err
}

func openSQLite(ctx context.Context, s sqliteSettings) (*sqlite.Store, error) {
	return sqlite.Open(ctx, s.Config)
}

func offlineSQLite(_ context.Context, s sqliteSettings) (offline, error) {
	db, err := sql.Open("sqlite", "file::memory:?_txlock=immediate") // an empty database of its own
	if err != nil {
		return offline{}, err
	}
	db.SetMaxOpenConns(1)
	store, err := sqlite.New(db, s.Config) //nolint:contextcheck // it outlives this call
	if err != nil {
		return offline{}, errors.Join(err, db.Close())
	}
	return offline{Store: store, Migrator: store, release: db.Close}, nil
}
