package postgres

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
	// Mark keeps the row and sets published_at; [Store.Purge] removes it later.
	Mark AfterPublish = "mark"
	// Archive moves the row to a table of its own with a partition for each month, so that the outbox stays small. The
	// event id can then be enqueued again.
	Archive AfterPublish = "archive"
	// Delete removes the row at once. The event id can then be enqueued again, and the event not be requeued.
	Delete AfterPublish = "delete"
)

// Payload is the type of the payload column, fixed when the table is created.
type Payload string

// The types of payload. Nil is NULL in all of them.
const (
	// JSON is validated and kept byte for byte: the consumer gets what was enqueued, and the server neither takes it apart
	// to store it nor puts it together again to read it.
	JSON Payload = "json"
	// JSONB is validated and can be indexed. It keeps the value, not the text: white space, the order of keys,
	// duplicate keys and the form of numbers change. The NUL escape and unpaired surrogates are refused at Enqueue.
	JSONB Payload = "jsonb"
	// Bytes (bytea) takes anything and keeps it byte for byte.
	Bytes Payload = "bytea"
)

// Defaults of Config.
const (
	DefaultSchema = "public"
	DefaultTable  = "outbox"
	DefaultLanes  = 64
	DefaultSweep  = 5 * time.Minute
)

// Config configures a [Store]. The zero value of every field but DSN means its default.
type Config struct {
	// DSN is a URL or a keyword/value string as pgx takes it. Required by Open; New does not look at it.
	DSN string
	// Schema is where the tables are; empty means "public". It must exist. Any name is quoted.
	Schema string
	// Table is the name of the outbox table and the prefix of everything beside it; empty means "outbox". At most 46
	// bytes, so that no derived name is cut off by the server.
	Table string
	// Lanes is how many lanes Migrate creates; 0 means 64. Between 1 and 1024. An existing table keeps its number.
	Lanes int
	// AfterPublish is Mark, Archive or Delete; empty means Mark.
	AfterPublish AfterPublish
	// Payload is JSON, JSONB or Bytes; empty means JSON. It must be what the table was created with.
	Payload Payload
	// Partitioned keeps the outbox in a partition for each month (UTC) of created_at, so that [Store.Purge] drops months
	// instead of deleting rows. It must be what the table was created with; the package comment says what it costs.
	Partitioned bool
	// StrictOrder makes Enqueue serialise the writers of one aggregate by a lock that lasts until the transaction
	// ends. Needed only where they are not serialised already by a lock or a version check on the aggregate's row:
	// without either, the order of two concurrent transactions is not defined by anything.
	StrictOrder bool
	// Pooler says that connections lead to a pooler in transaction mode (PgBouncer): then no named prepared statements
	// are used, and nothing listens for notifications. A Store that Open made finds PgBouncer out by itself when it first
	// connects. For New it only turns off listening: set default_query_exec_mode=exec on the pool.
	Pooler bool
	// NoListen turns off the connection that waits for notifications; events of other processes are then found by
	// polling once a second at least.
	NoListen bool
	// Sweep is how often a lane is read from its start, for rows that came in past the rules: ids given by hand, or
	// rows made unpublished by hand without a row in the rewinds table. 0 means 5 minutes, negative means never.
	Sweep time.Duration
	// Logger gets what a person may want to know; nil means slog.Default().
	Logger *slog.Logger
}

// WithDefaults returns a copy with the defaults in place of empty fields.
func (c Config) WithDefaults() Config {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if c.Table == "" {
		c.Table = DefaultTable
	}
	if c.Lanes == 0 {
		c.Lanes = DefaultLanes
	}
	if c.AfterPublish == "" {
		c.AfterPublish = Mark
	}
	if c.Payload == "" {
		c.Payload = JSON
	}
	if c.Sweep == 0 {
		c.Sweep = DefaultSweep
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Limits of names. PostgreSQL cuts identifiers at 63 bytes; the longest suffix is "_archive_202612_pk".
const (
	maxIdentifierBytes = 63
	maxTableBytes      = 46
	maxLanes           = 1024
)

// Validate reports everything that is wrong, a *[core.FieldError] for each fault, joined. Empty fields count as their
// defaults; that DSN is there is Open's concern.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	bad := func(path, format string, args ...any) {
		faults = append(faults, &core.FieldError{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	name := func(path, value string, limit int) {
		switch {
		case len(value) > limit:
			bad(path, "has %d bytes, the limit is %d", len(value), limit)
		case strings.ContainsRune(value, 0):
			bad(path, "contains a NUL character")
		}
	}
	name("Schema", c.Schema, maxIdentifierBytes)
	name("Table", c.Table, maxTableBytes)
	if c.Lanes < 1 || c.Lanes > maxLanes {
		bad("Lanes", "%d is not between 1 and %d", c.Lanes, maxLanes)
	}
	switch c.AfterPublish {
	case Mark, Archive, Delete:
	default:
		bad("AfterPublish", "unknown %q; use %s, %s or %s", c.AfterPublish, Mark, Archive, Delete)
	}
	switch c.Payload {
	case JSON, JSONB, Bytes:
	default:
		bad("Payload", "unknown %q; use %s, %s or %s", c.Payload, JSON, JSONB, Bytes)
	}
	return errors.Join(faults...)
}

func (c Config) names() names {
	return names{schema: c.Schema, table: c.Table, payload: c.Payload, lanes: c.Lanes, partitioned: c.Partitioned}
}
