package brokertest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

// note is part of every payload; no error text may contain it.
const note = "never in an error or log"

// NewRecord returns a record as a store would hand it out: with a new event id, a small JSON payload that contains the
// id, and two headers. Tests of an adapter change what they need.
func NewRecord(topic, aggregateID string, id int64) *core.Record {
	return &core.Record{
		Message: core.Message{
			EventID:       core.NewEventID(),
			Topic:         topic,
			AggregateType: "order",
			AggregateID:   aggregateID,
			EventType:     "order.changed",
			Payload:       fmt.Appendf(nil, `{"id":%d,"note":%q}`, id, note),
			Headers:       map[string]string{"schema_version": "1", "tenant": "acme"},
		},
		ID:        id,
		CreatedAt: time.Date(2025, time.March, 1, 12, 0, 0, 0, time.UTC),
	}
}

// clone returns a deep copy.
func clone(r *core.Record) *core.Record {
	c := *r
	c.Payload = slices.Clone(r.Payload)
	c.Headers = maps.Clone(r.Headers)
	return &c
}

// eventIDs returns the ids of the records, in order.
func eventIDs(records []*core.Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.EventID
	}
	return ids
}
