package adapters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

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

// ErrNoFile is wrapped by the error of an [Existing] store whose database file is not there.
var ErrNoFile = errors.New("there is no such file; `outbox migrate up` makes it, with its tables")

// existingSQLite refuses to make the file: a name that is misspelt would look like an outbox without events.
func existingSQLite(ctx context.Context, s sqliteSettings) (*sqlite.Store, error) {
	file := fileOf(s.Path)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sqlite: %s: %w", file, ErrNoFile)
	}
	return openSQLite(ctx, s)
}

// fileOf is the name of the file in what may be a URI.
func fileOf(path string) string {
	if !strings.HasPrefix(path, "file:") {
		return path
	}
	uri, err := url.Parse(path)
	if err != nil {
		return path
	}
	if name, err := url.PathUnescape(uri.Opaque); err == nil && name != "" {
		return name
	}
	return uri.Path
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
