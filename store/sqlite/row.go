package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
)

// unreadable is a row that no message can be made of, and why.
type unreadable struct {
	record *core.Record
	fault  string
}

// maxFaultBytes bounds the text that is kept with an unreadable row.
const maxFaultBytes = 2000

// scanRecord makes a record of a row of columnsSQL; more are the columns that follow. A fault is not an error: it says why this row, and no other, can
// not be handed out; such a record has no headers.
func scanRecord(rows *sql.Rows, more ...any) (r *core.Record, fault string, err error) {
	r = &core.Record{Lane: onlyLane}
	var noPayload bool
	var headers sql.NullString
	var created, firstFailed, delay int64
	err = rows.Scan(append([]any{
		&r.ID, &r.EventID, &r.Topic, &r.AggregateType, &r.AggregateID, &r.EventType,
		&noPayload, &r.Payload, &headers, &created, &r.Attempts, &firstFailed, &delay, &r.Replay,
	}, more...)...)
	if err != nil {
		return nil, "", err
	}
	if !noPayload && r.Payload == nil {
		r.Payload = []byte{} // the driver gives nil for an empty value
	}
	r.CreatedAt = time.UnixMilli(created).UTC()
	if firstFailed != 0 {
		r.FirstFailedAt = time.UnixMilli(firstFailed).UTC()
	}
	r.Delay = duration(delay)
	if r.Headers, fault = parseHeaders(headers.String); fault == "" {
		fault = faultOf(r.Validate())
	}
	return r, fault, nil
}

// duration is so many milliseconds, without an overflow of a time in the far future; the last of all is never.
func duration(millis int64) time.Duration {
	if millis == math.MaxInt64 {
		return core.Forever
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(-most, min(millis, most))) * time.Millisecond
}

func parseHeaders(text string) (headers map[string]string, fault string) {
	if text == "" {
		return nil, ""
	}
	if !utf8.ValidString(text) {
		return nil, "headers: not valid UTF-8"
	}
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, bounded("headers: not a JSON object of strings: " + err.Error())
	}
	return headers, ""
}

// faultOf is the text of what Message.Validate found, without the words that speak of an Enqueue call.
func faultOf(err error) string {
	if err == nil {
		return ""
	}
	faults := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		faults = joined.Unwrap()
	}
	var texts []string
	for _, f := range faults {
		var invalid *core.InvalidMessageError
		if errors.As(f, &invalid) {
			texts = append(texts, invalid.Field+" "+invalid.Reason)
		} else {
			texts = append(texts, f.Error())
		}
	}
	return bounded(strings.Join(texts, "; "))
}

func bounded(text string) string {
	if len(text) > maxFaultBytes {
		text = text[:maxFaultBytes]
	}
	return strings.ToValidUTF8(text, "")
}
