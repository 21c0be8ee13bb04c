package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// names writes the configured names into SQL. The SQL of this package has them in braces, as for the default ones:
//
//	{outbox_lanes}     the qualified name, "public"."outbox_lanes"
//	{"outbox_pending"} the bare identifier, for indexes and constraints
//	{'outbox_id_seq'}  the qualified name as a string literal
//	{'ALTER TABLE outbox SET ...'} a statement on the table as a string literal
//	{schema} {table} {channel} {payload} {lanes}
//	{month} {storage} {vacuuming} {same_month} {old_month} {unknown}  what a partitioned outbox has otherwise, see months.go
//
// So every name is qualified and quoted, and no search_path matters.
type names struct {
	schema, table string
	payload       Payload
	lanes         int
	partitioned   bool
}

var placeholder = regexp.MustCompile(`\{(['"]?)([A-Za-z_][A-Za-z_0-9 ,]*)(['"]?)\}`)

func (n names) sql(template string) string {
	return placeholder.ReplaceAllStringFunc(template, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		name := parts[2]
		switch {
		case parts[1] == `"`:
			return quote(n.prefixed(name))
		case strings.HasPrefix(name, "ALTER TABLE outbox "):
			return literal("ALTER TABLE " + n.qualified("outbox") + strings.TrimPrefix(name, "ALTER TABLE outbox"))
		case parts[1] == `'`:
			return literal(n.qualified(name))
		}
		switch name {
		case "schema":
			return literal(n.schema)
		case "table":
			return literal(n.table)
		case "channel":
			return literal(n.channel())
		case "payload":
			return string(n.payload)
		case "body":
			return n.body()
		case "element":
			return n.element()
		case "lanes":
			return strconv.Itoa(n.lanes)
		}
		if text, ok := n.byMonth(name); ok {
			return text
		}
		return n.qualified(name)
	})
}

// prefixed is the table's own name in place of "outbox" at the front.
func (n names) prefixed(name string) string { return n.table + strings.TrimPrefix(name, "outbox") }

func (n names) qualified(name string) string { return quote(n.schema) + "." + quote(n.prefixed(name)) }

// channel is the name that inserts notify. It is hashed, as it is bounded in length and shared by the whole database.
func (n names) channel() string {
	sum := sha256.Sum256([]byte(quote(n.schema) + "." + quote(n.table)))
	return "outbox_" + hex.EncodeToString(sum[:8])
}

// body is the payload as it is read: bytes, or the text of JSON.
func (n names) body() string {
	if n.payload == Bytes {
		return "payload"
	}
	return "payload::text"
}

// element is the type in which payloads are sent to the server.
func (n names) element() string {
	if n.payload == Bytes {
		return "bytea"
	}
	return "text"
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal quotes a string for SQL, whatever standard_conforming_strings says.
func literal(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	if strings.Contains(s, `\`) {
		return "E'" + strings.ReplaceAll(s, `\`, `\\`) + "'"
	}
	return "'" + s + "'"
}
