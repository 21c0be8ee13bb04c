package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/go-outbox/outbox/core"
)

// readers is how many connections of an opened Store read: a fetch, and room for inspection beside it.
const readers = 4

// checkTimeout bounds the question that New asks the caller's pool.
const checkTimeout = 5 * time.Second

// Open opens the file, makes it when it is missing, and returns a Store that owns its connections: Close closes them.
// The file is switched to WAL mode. The tables are not made: call Migrate.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	err := cfg.Validate()
	if cfg.Path == "" {
		err = errors.Join(&core.FieldError{Path: "Path", Reason: "is required: the database file"}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: config: %w", err)
	}
	cfg = cfg.WithDefaults()
	writer, err := openPool(ctx, dsn(cfg, false), 1)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %s: %w", cfg.Path, err)
	}
	reader, err := openPool(ctx, dsn(cfg, true), readers)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %s for reading: %w", cfg.Path, errors.Join(err, writer.Close()))
	}
	return newStore(cfg, writer, reader, true), nil
}

func openPool(ctx context.Context, dsn string, conns int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// dsn is the driver's name of the database, with all that a connection must be set to.
func dsn(cfg Config, readOnly bool) string {
	params := url.Values{"_busy_timeout": {strconv.FormatInt(cfg.BusyTimeout.Milliseconds(), 10)}}
	if readOnly {
		params.Set("_query_only", "1")
	} else {
		params.Set("_txlock", "immediate")
		params.Set("_journal_mode", "WAL")
		params.Set("_synchronous", strings.ToUpper(string(cfg.Synchronous)))
	}
	name, joint := cfg.Path, "?"
	if !strings.HasPrefix(name, "file:") {
		name = filepath.ToSlash(name)
		if filepath.VolumeName(cfg.Path) != "" {
			name = "/" + name // C:/app.db is /C:/app.db in a URI
		}
		name = "file:" + (&url.URL{Path: name}).EscapedPath()
	} else if strings.Contains(name, "?") {
		joint = "&"
	}
	return name + joint + params.Encode()
}

// New returns a Store on the caller's pool, which it never closes. The pool must be for one file in WAL mode with a
// busy timeout, and its transactions must begin immediate: New asks it once and returns an error that says what to
// add to its DSN. With modernc.org/sqlite that is:
//
//	file:app.db?_txlock=immediate&_busy_timeout=10000&_journal_mode=WAL&_synchronous=FULL
//
// Give the pool SetMaxOpenConns(1) if nothing speaks against it: its users then wait in line instead of polling for
// the lock. A database in memory must have it.
func New(db *sql.DB, cfg Config) (*Store, error) {
	cfg.Path = ""
	err := cfg.Validate()
	if db == nil {
		err = errors.Join(&core.FieldError{Path: "db", Reason: "is nil"}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: config: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	if err := checkPool(ctx, db); err != nil {
		return nil, fmt.Errorf("sqlite: the given pool: %w", err)
	}
	return newStore(cfg.WithDefaults(), db, db, false), nil
}

// checkPool reports everything in a pool's setup that would lead to SQLITE_BUSY or to separate databases.
func checkPool(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// A connection that holds the write lock refuses to checkpoint: the only way to ask whether BEGIN was IMMEDIATE.
	// It comes first, as any query would make a deferred transaction refuse it too.
	_, checkpointErr := tx.ExecContext(ctx, "PRAGMA wal_checkpoint(NOOP)")
	var journal string
	var busyMillis int
	if err := tx.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&busyMillis); err != nil {
		return err
	}
	single := db.Stats().MaxOpenConnections == 1
	var faults []error
	if checkpointErr == nil {
		faults = append(faults, errors.New("its transactions begin deferred, so that one which reads before it writes "+
			"can fail with SQLITE_BUSY; add _txlock=immediate to its DSN"))
	}
	switch {
	case journal == "memory" && !single:
		faults = append(faults, errors.New("each connection has its own database in memory; call SetMaxOpenConns(1)"))
	case journal != "wal" && journal != "memory":
		faults = append(faults, fmt.Errorf("its journal mode is %s, in which readers and writers block each other; "+
			"add _journal_mode=WAL to its DSN", journal))
	}
	if busyMillis == 0 && journal != "memory" {
		faults = append(faults, errors.New("its busy timeout is 0, so that every lock of another connection is an error; "+
			"add _busy_timeout=10000 to its DSN"))
	}
	return errors.Join(faults...)
}
