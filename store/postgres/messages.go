package postgres

import (
	"encoding/json"
	"slices"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// messageArrays are messages by column, with nil for NULL.
type messageArrays struct {
	eventIDs, types, ids, eventTypes []string
	topics, headers                  []*string
	payloads                         [][]byte
}

func newMessageArrays(messages []core.Message) *messageArrays {
	a := &messageArrays{}
	for i := range messages {
		m := &messages[i]
		a.eventIDs = append(a.eventIDs, m.EventID)
		a.topics = append(a.topics, orNil(m.Topic))
		a.types = append(a.types, m.AggregateType)
		a.ids = append(a.ids, m.AggregateID)
		a.eventTypes = append(a.eventTypes, m.EventType)
		a.payloads = append(a.payloads, m.Payload)
		a.headers = append(a.headers, orNil(headersText(m.Headers)))
	}
	return a
}

// payloadTexts are the payloads of a table of JSON.
func (a *messageArrays) payloadTexts() []*string {
	texts := make([]*string, len(a.payloads))
	for i, p := range a.payloads {
		if p != nil {
			text := string(p)
			texts[i] = &text
		}
	}
	return texts
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func headersText(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	text, _ := json.Marshal(headers) // a map of strings can always be encoded
	return string(text)
}

// lockKeys are the locks that Enqueue takes, in the order in which all transactions take them.
func (s *Store) lockKeys(given, valid []core.Message) []int64 {
	keys := append(s.orderKeys(valid), s.eventKeys(given)...)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// eventKeys keep two transactions from enqueuing an event id at the same time where no unique index does. Ids that are
// made up for the message are not there yet.
func (s *Store) eventKeys(messages []core.Message) (keys []int64) {
	if !s.cfg.Partitioned {
		return nil
	}
	table := s.lockKey("event")
	for i := range messages {
		if id := messages[i].EventID; id != "" {
			keys = append(keys, table^int64(ordering.Hash("event", id))) //nolint:gosec // 60 bits
		}
	}
	return keys
}

// orderKeys are the locks of aggregates that Config.StrictOrder takes.
func (s *Store) orderKeys(messages []core.Message) []int64 {
	if !s.cfg.StrictOrder {
		return nil
	}
	table := s.lockKey("order")
	keys := make([]int64, len(messages))
	for i := range messages {
		keys[i] = table ^ int64(ordering.Hash(messages[i].AggregateType, messages[i].AggregateID)) //nolint:gosec // 60 bits
	}
	return keys
}
