package postgres

import (
	"encoding/json"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// scanRecord reads a row of rowsSQL, headsSQL or deadSQL; more are the columns that follow. used is the size of the rows
// so far, this one included, as rowsSQL counts it.
func scanRecord(rows pgx.Rows, more ...any) (r *core.Record, used int64, err error) {
	r = &core.Record{}
	var headers []byte
	var firstFailed *time.Time
	var delay int64
	dest := []any{
		&r.ID, &r.Lane, &r.EventID, &r.Topic, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload,
		&headers, &r.CreatedAt, &r.Attempts, &firstFailed, &delay, &r.Replay, &used,
	}
	if err := rows.Scan(append(dest, more...)...); err != nil {
		return nil, 0, err
	}
	if firstFailed != nil {
		r.FirstFailedAt = *firstFailed
	}
	if r.Delay = core.Forever; delay != math.MaxInt64 {
		r.Delay = time.Duration(delay) * time.Microsecond
	}
	r.Headers = readHeaders(headers)
	return r, used, nil
}

// readHeaders decodes an object of strings. Plain SQL may have written other values: they come as their JSON text.
func readHeaders(text []byte) map[string]string {
	if len(text) == 0 {
		return nil
	}
	var headers map[string]string
	if json.Unmarshal(text, &headers) == nil {
		return headers
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(text, &values) != nil {
		return nil
	}
	headers = make(map[string]string, len(values))
	for name, value := range values {
		var plain string
		if json.Unmarshal(value, &plain) != nil {
			plain = string(value)
		}
		headers[name] = plain
	}
	return headers
}
