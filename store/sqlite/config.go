package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-outbox/outbox/core"
)

// AfterPublish is what becomes of a row once the broker has its message.
type AfterPublish string

// What becomes of published rows.
const (
	// Mark keeps the row and sets published_at; [Store].Purge removes it later.
	Mark AfterPublish = "mark"
	// Delete removes the row at once. The event can then be enqueued again, and not be requeued.
	Delete AfterPublish = "delete"
)

// Payload is what a table accepts as payloads.
type Payload string

// The kinds of payload. Both are handed out byte for byte as they were enqueued, and nil stays nil.
const (
	// JSON accepts nil and valid JSON, stored as TEXT.
	JSON Payload = "json"
	// Bytes accepts anything, stored as BLOB.
	Bytes Payload = "bytes"
)

// Synchronous is how durable a commit is.
type Synchronous string

// The levels of durability.
const (
	// Full syncs the file at every commit: what is committed survives a power cut.
	Full Synchronous = "full"
	// Normal syncs at checkpoints only: several times faster, and safe when the process dies. A power cut can lose the
	// last transactions, although their events were published already.
	Normal Synchronous = "normal"
)

// Defaults of Config.
const (
	DefaultTable       = "outbox"
	DefaultBusyTimeout = 10 * time.Second
)

// Config configures a [Store]. The zero value of every field but Path means its default.
type Config struct {
	// Path is the database file, made when it is missing: a file name, or a "file:" URI with parameters of SQLite or
	// the driver. Required by Open; New does not look at it. Not ":memory:", as each connection would have its own.
	Path string
	// Table is the name of the outbox table and the prefix of the tables and indexes beside it; empty means "outbox".
	// Any name is quoted; at most 100 bytes.
	Table string
	// AfterPublish is Mark or Delete; empty means Mark.
	AfterPublish AfterPublish
	// Payload is JSON or Bytes; empty means JSON.
	Payload Payload
	// BusyTimeout is how long Open's connections wait for a lock that another process holds; 0 means 10 seconds. At
	// least a millisecond. New leaves the pool as it is.
	BusyTimeout time.Duration
	// Synchronous is Full or Normal, for Open's connections; empty means Full. New leaves the pool as it is.
	Synchronous Synchronous
	// Logger gets the rows that the Store parks itself; nil means slog.Default().
	Logger *slog.Logger
}

// WithDefaults returns a copy with the defaults in place of empty fields.
func (c Config) WithDefaults() Config {
	if c.Table == "" {
		c.Table = DefaultTable
	}
	if c.AfterPublish == "" {
		c.AfterPublish = Mark
	}
	if c.Payload == "" {
		c.Payload = JSON
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	if c.Synchronous == "" {
		c.Synchronous = Full
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// maxTableBytes bounds a table name: enough for any, and error texts stay readable.
const maxTableBytes = 100

// Validate reports everything that is wrong, a *[core.FieldError] for each fault, joined. Empty fields count as their
// defaults; that Path is there is Open's concern.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	bad := func(path, format string, args ...any) {
		faults = append(faults, &core.FieldError{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	if inMemory(c.Path) {
		bad("Path", "a database in memory has one connection, Open needs two; "+
			"use a file, or New with a pool of one connection")
	}
	switch {
	case len(c.Table) > maxTableBytes:
		bad("Table", "has %d bytes, the limit is %d", len(c.Table), maxTableBytes)
	case strings.ContainsRune(c.Table, 0):
		bad("Table", "contains a NUL character")
	case strings.HasPrefix(strings.ToLower(c.Table), "sqlite_"):
		bad("Table", "%q is reserved by SQLite; names must not begin with sqlite_", c.Table)
	}
	if c.AfterPublish != Mark && c.AfterPublish != Delete {
		bad("AfterPublish", "unknown %q; use %s or %s", c.AfterPublish, Mark, Delete)
	}
	if c.Payload != JSON && c.Payload != Bytes {
		bad("Payload", "unknown %q; use %s or %s", c.Payload, JSON, Bytes)
	}
	if c.BusyTimeout < time.Millisecond {
		bad("BusyTimeout", "%s is too short; use at least 1ms", c.BusyTimeout)
	}
	if c.Synchronous != Full && c.Synchronous != Normal {
		bad("Synchronous", "unknown %q; use %s or %s", c.Synchronous, Full, Normal)
	}
	return errors.Join(faults...)
}

func inMemory(path string) bool {
	return strings.Contains(path, ":memory:") || strings.Contains(path, "mode=memory")
}
