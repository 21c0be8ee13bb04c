package storetest

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/go-outbox/outbox/core"
)

func payloadCases() []Case {
	return []Case{
		rule("Payload/NilStaysNil", payloadNilStaysNil),
		rule("Payload/EmptyStaysEmptyOrIsRefused", payloadEmptyStaysEmpty),
		rule("Payload/ComesBackAsItWas", payloadComesBackAsItWas),
		rule("Payload/OtherThanJSONIsAsDeclared", payloadOtherThanJSON),
		rule("Payload/LargeComesBackWhole", payloadLargeComesBackWhole),
		rule("Headers/KeepsOddCharacters", headersKeepsOddCharacters),
		rule("Headers/NoneStaysNone", headersNoneStaysNone),
		rule("Record/KeepsEveryField", recordKeepsEveryField),
		rule("Record/BelongsToTheDispatcher", recordBelongsToTheDispatcher),
		rule("Record/LaneIsTheHashOfTheAggregate", recordLaneIsTheHash),
	}
}

// roundTrip sends one message through the table.
func (f *fixture) roundTrip(m core.Message) *core.Record {
	f.Helper()
	f.enqueue(m)
	return f.join("m").await(m.EventID)[0]
}

// Nil becomes a tombstone on Kafka, which deletes the aggregate for its consumers; "null" and "" do not.
func payloadNilStaysNil(f *fixture) {
	m := event("a", 1)
	m.Payload = nil
	if got := f.roundTrip(m); got.Payload != nil {
		f.Errorf("a nil payload came back as %q", got.Payload)
	}
}

func payloadEmptyStaysEmpty(f *fixture) {
	m := event("a", 1)
	m.Payload = []byte{}
	if f.h.JSONOnly {
		f.wantPayloadRefused(m)
		return
	}
	if got := f.roundTrip(m); got.Payload == nil || len(got.Payload) > 0 {
		f.Errorf("an empty payload came back as %q (nil: %t)", got.Payload, got.Payload == nil)
	}
}

func payloadComesBackAsItWas(f *fixture) {
	payloads := []string{
		`null`, `{}`, `[]`, `""`, `0`, `false`,
		`{"text": "Zoë 🦊 \"quoted\" back\\slash 'single' %s $1 ?"}`,
		`{"price": 12.5, "list": [1, null, "three"], "nested": {"deep": {"er": true}}}`,
	}
	if !f.h.JSONOnly {
		payloads = append(payloads, ` `, `{ "b":1,  "a":1, "a":2 }`, "\x00\x01\xff", "not JSON", "line\r\nline\n")
	}
	var messages []core.Message
	var ids []string
	for i, payload := range payloads {
		m := event("a", i)
		m.Payload = []byte(payload)
		messages = append(messages, m)
		ids = append(ids, m.EventID)
	}
	f.enqueue(messages...)
	got := f.join("m").await(ids...)
	for i, payload := range payloads {
		if !f.samePayload(byEvent(got, ids[i]).Payload, []byte(payload)) {
			f.Errorf("payload %q came back as %q", payload, byEvent(got, ids[i]).Payload)
		}
	}
}

// samePayload compares bytes, or what they mean where the table holds JSON.
func (f *fixture) samePayload(got, want []byte) bool {
	if !f.h.JSONOnly {
		return bytes.Equal(got, want)
	}
	var g, w any
	return json.Unmarshal(got, &g) == nil && json.Unmarshal(want, &w) == nil && reflect.DeepEqual(g, w)
}

// Checks Harness.JSONOnly: bad JSON is found at the caller's desk, not by the database in the middle of a transaction.
func payloadOtherThanJSON(f *fixture) {
	m := event("a", 1)
	m.Payload = []byte("not JSON")
	if f.h.JSONOnly {
		f.wantPayloadRefused(m)
		return
	}
	if got := f.roundTrip(m); string(got.Payload) != "not JSON" {
		f.Errorf("payload came back as %q", got.Payload)
	}
}

func (f *fixture) wantPayloadRefused(m core.Message) {
	f.Helper()
	tx := f.begin()
	_, err := tx.Enqueue(f.within(), m)
	faults := invalidMessages(err)
	if len(faults) != 1 || faults[0].Field != "Payload" {
		f.Fatalf("payload %q: want one *core.InvalidMessageError for Payload, got %v", m.Payload, err)
	}
	f.enqueueIn(tx, event("b", 1))
	f.commit(tx)
	equal(f, eventsOf(f.join("m").await("b.1")), []string{"b.1"}, "committed after the refused payload")
}

func payloadLargeComesBackWhole(f *fixture) {
	m := event("a", 1)
	m.Payload = []byte(`"` + strings.Repeat("0123456789abcdef", 1<<16) + `"`)
	if got := f.roundTrip(m); !bytes.Equal(got.Payload, m.Payload) {
		f.Errorf("a payload of %d bytes came back with %d bytes or changed", len(m.Payload), len(got.Payload))
	}
}

func headersKeepsOddCharacters(f *fixture) {
	m := event("a", 1)
	m.Headers = map[string]string{
		"empty":                "",
		"space":                " ",
		"newline":              "line\r\nline",
		"long":                 strings.Repeat("x", 5000),
		"quotes":               `"double" 'single' back\slash {"json": true}`,
		"unicode":              "Zoë 🦊 \u2028",
		"null":                 "null",
		"na:me with = and / ?": "odd name",
		"Content-Type":         "one case",
		"content-type":         "another case",
	}
	want := maps.Clone(m.Headers)
	if got := f.roundTrip(m); !maps.Equal(got.Headers, want) {
		f.Errorf("headers came back as %q, want %q", got.Headers, want)
	}
}

func headersNoneStaysNone(f *fixture) {
	none, empty := event("a", 1), event("a", 2)
	empty.Headers = map[string]string{}
	f.enqueue(none, empty)
	for _, r := range f.join("m").await("a.1", "a.2") {
		if len(r.Headers) > 0 {
			f.Errorf("%s was enqueued without headers and came back with %q", r.EventID, r.Headers)
		}
	}
}

func recordKeepsEveryField(f *fixture) {
	longest := core.Message{
		EventID:       strings.Repeat("i", core.MaxEventIDBytes),
		Topic:         strings.Repeat("t", core.MaxTopicBytes),
		AggregateType: strings.Repeat("g", core.MaxTypeBytes),
		AggregateID:   strings.Repeat("ä", core.MaxAggregateIDBytes/2),
		EventType:     strings.Repeat("e", core.MaxTypeBytes),
		Payload:       []byte(`{}`),
	}
	odd := core.Message{
		EventID:       "01J/odd id",
		AggregateType: "Größe 🦊",
		AggregateID:   ` '"\%_ ` + "\t",
		EventType:     "a;b",
		Payload:       []byte(`{}`),
	}
	f.enqueue(longest, odd)
	got := f.join("m").await(longest.EventID, odd.EventID)
	for _, want := range []core.Message{longest, odd} {
		r := byEvent(got, want.EventID)
		if r.Topic != want.Topic || r.AggregateType != want.AggregateType || r.AggregateID != want.AggregateID ||
			r.EventType != want.EventType {
			f.Errorf("came back as %+v, want %+v", r.Message, want)
		}
		if r.ID < 1 || r.Attempts != 0 || r.Replay != 0 || r.Delay > 0 || !r.FirstFailedAt.IsZero() || r.CreatedAt.IsZero() {
			f.Errorf("a fresh record has id %d, attempts %d, replay %d, delay %v, first failed %v, created %v",
				r.ID, r.Attempts, r.Replay, r.Delay, r.FirstFailedAt, r.CreatedAt)
		}
	}
}

func recordBelongsToTheDispatcher(f *fixture) {
	m := event("a", 1)
	m.Payload, m.Headers = []byte(`"before"`), map[string]string{"tenant": "before"}
	r := f.join("m")
	f.enqueue(m)
	got := r.await("a.1")[0]
	copy(got.Payload, `"AFTER!"`)
	got.Headers["tenant"] = "after"
	r.letGo()
	for _, got = range r.again() {
		if string(got.Payload) != `"before"` || got.Headers["tenant"] != "before" {
			f.Errorf("what the dispatcher did to a record shows in the next fetch: %s %v", got.Payload, got.Headers)
		}
	}
}

// Every process computes the lane in the same way, in Go or in SQL, in every version.
func recordLaneIsTheHash(f *fixture) {
	var want []string
	for _, key := range []string{"a", "b", "c", "Zoë/🦊", "0", "ord_1"} {
		want = append(want, f.enqueue(event(key, 1))...)
	}
	for _, r := range f.join("m").await(want...) {
		if lane := f.lane(r.AggregateID); r.Lane != lane {
			f.Errorf("aggregate %s is in lane %d, want %d (ordering.Lane)", r.AggregateID, r.Lane, lane)
		}
	}
}
