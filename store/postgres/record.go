package postgres

import (
	"encoding/json"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/go-outbox/outbox/core"
)

// recordReader reads rows of rowsSQL, smallRowsSQL, headsSQL or deadSQL. It keeps its variables from row to row, and texts
// that many rows share once, so that a row allocates little but what is its own. The zero value is ready to use.
type recordReader struct {
	topic, aggregateType, eventType pgtype.DriverBytes // valid until the next row
	headers                         pgtype.DriverBytes
	firstFailed                     *time.Time
	delay, used                     int64
	dest                            []any
	shared                          map[string]string
}

// read reads a row; more are the columns that follow. used is the size of the rows so far, this one included, as rowsSQL
// counts it, or of this one.
func (rr *recordReader) read(rows pgx.Rows, more ...any) (r *core.Record, used int64, err error) {
	r = &core.Record{}
	rr.dest = append(append(rr.dest[:0],
		&r.ID, &r.Lane, &r.EventID, &rr.topic, &rr.aggregateType, &r.AggregateID, &rr.eventType, &r.Payload,
		&rr.headers, &r.CreatedAt, &r.Attempts, &rr.firstFailed, &rr.delay, &r.Replay, &rr.used,
	), more...)
	if err := rows.Scan(rr.dest...); err != nil {
		return nil, 0, err
	}
	r.Topic, r.AggregateType, r.EventType = rr.text(rr.topic), rr.text(rr.aggregateType), rr.text(rr.eventType)
	if rr.firstFailed != nil {
		r.FirstFailedAt = *rr.firstFailed
	}
	if r.Delay = core.Forever; rr.delay != math.MaxInt64 {
		r.Delay = time.Duration(rr.delay) * time.Microsecond
	}
	r.Headers = readHeaders(rr.headers)
	return r, rr.used, nil
}

// text makes a string, the same one for the same text.
func (rr *recordReader) text(b []byte) string {
	if s, known := rr.shared[string(b)]; known {
		return s
	}
	if rr.shared == nil {
		rr.shared = map[string]string{}
	}
	s := string(b)
	rr.shared[s] = s
	return s
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
