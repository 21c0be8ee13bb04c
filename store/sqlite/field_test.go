package sqlite_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

func TestField_006_DeletedIDIsNotReused(t *testing.T) {
	t.Parallel()
	for _, after := range []sqlite.AfterPublish{sqlite.Mark, sqlite.Delete} {
		path := filepath.Join(t.TempDir(), "outbox.db")
		configure := func(c *sqlite.Config) { c.AfterPublish = after }
		var ids []int64
		for run, event := range []string{"E1", "E2"} {
			s := openFile(t, path, configure) // a new process each time
			enqueue(t, s, message("a", event))
			m := join(t, s, fmt.Sprint("run", run))
			records := m.fetch().Records
			if len(records) != 1 || records[0].EventID != event {
				t.Fatalf("%s: run %d got %v", after, run, eventIDs(records))
			}
			ids = append(ids, records[0].ID)
			m.settle(core.StatusPublished, records...)
			if _, err := s.Purge(t.Context(), 0, 0); err != nil {
				t.Fatal(err)
			}
			if n := queryInt(t, s, `SELECT count(*) FROM outbox`); n != 0 {
				t.Fatalf("%s: %d rows left", after, n)
			}
			if _, err := s.Lease(t.Context(), core.LeaseRequest{Member: m.name, Leave: true}); err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
		}
		if ids[1] <= ids[0] {
			t.Errorf("%s: E2 has id %d, E1 had %d", after, ids[1], ids[0])
		}
	}
}

func TestField_035_TwoWritersOfOneResult(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "R"))
	m := join(t, s, "m1")
	records := m.fetch().Records
	m.settle(core.StatusFailed, records...)
	if got := m.settle(core.StatusPublished, records...); len(got.Missed) != 0 {
		t.Errorf("publishing after a failure: %+v", got)
	}
	if got := m.settle(core.StatusFailed, records...); len(got.Missed) != 1 {
		t.Errorf("a failure after publishing: %+v, want it missed", got)
	}
	n := queryInt(t, s, `SELECT count(*) FROM outbox WHERE published_at > 0 AND dlq = 0 AND attempt_count = 1`)
	if n != 1 {
		t.Error("R is not in one consistent state")
	}
	if left := m.drain(); len(left) != 0 {
		t.Errorf("sent again: %v", left)
	}
}

func TestField_045_MarkFailsAfterPublish(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	s := openFile(t, path)
	enqueue(t, s, message("a", "e1"))
	m := join(t, s, "m1")
	sent := m.fetch().Records
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Settle(dead, m.settlement(core.StatusPublished, sent...)); err == nil {
		t.Fatal("a settle without a connection succeeded")
	}
	_ = s.Close()
	exec(t, openFile(t, path), `UPDATE outbox_lanes SET expires_at = 1`)
	next := join(t, openFile(t, path), "m2")
	again := next.fetch().Records
	if len(again) != 1 || again[0].EventID != sent[0].EventID || again[0].ID != sent[0].ID || again[0].Attempts != 0 {
		t.Fatalf("second send: %+v, want event %s once more", again, sent[0].EventID)
	}
	next.settle(core.StatusPublished, again...)
	if more := next.drain(); len(more) != 0 {
		t.Errorf("a third send: %v", more)
	}
}

func TestField_073_OrderIsNotTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	var want []string
	var messages []core.Message
	for i := 1; i <= 100; i++ {
		messages = append(messages, message("a", fmt.Sprint("e", i)))
		want = append(want, fmt.Sprint("e", i))
	}
	enqueue(t, s, messages...)
	exec(t, s, `UPDATE outbox SET created_at = 1700000000000`)
	m := join(t, s, "m1")
	equal(t, "equal times", eventIDs(m.fetch().Records), want)
	exec(t, s, `UPDATE outbox SET created_at = 1700000000000 - id`)
	equal(t, "times backwards", m.drain(), want)
}

func TestField_082_UnreadableRowDoesNotBlock(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, bad := range []string{
		`'{broken'`, `'["a list"]'`, `'{"n":1}'`, `'{"event_id":"mine"}'`, `CAST(x'ff' AS TEXT)`,
	} {
		exec(t, s, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, headers)
			VALUES ('order', 'poison', 'order.created', `+bad+`)`)
	}
	exec(t, s, `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type)
		VALUES (CAST(x'ff' AS TEXT), '', 'poison', 'order.created')`)
	enqueue(t, s, numbered(50)...)
	m := join(t, s, "m1")
	req := m.request()
	req.MaxRecords = 3 // the poison alone fills two replies
	for range 2 {
		if got := m.do(req); len(got.Records) != 0 || got.UpTo == core.EverythingAbove || len(got.Parked) != 3 || got.Parked[0].Reason == "" {
			t.Fatalf("a reply of poison: %v up to %d, want none and more to come", eventIDs(got.Records), got.UpTo)
		}
	}
	if sent := m.drain(); len(sent) != 50 {
		t.Errorf("%d sent, want 50: %v", len(sent), sent)
	}
	n := queryInt(t, s, `SELECT count(*) FROM outbox WHERE aggregate_id = 'poison' AND dlq = 1 AND attempt_count = 1
		AND (last_error LIKE 'headers: %' OR last_error LIKE 'Headers["event_id"]%' OR last_error LIKE 'EventID%')`)
	if n != 6 {
		t.Errorf("%d rows are parked with a reason, want 6", n)
	}
}

func TestField_082_RepairedRowFlows(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s, `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, headers)
		VALUES ('e1', 'order', 'a', 'order.created', 'broken')`)
	m := join(t, s, "m1")
	m.fetch()
	exec(t, s, `UPDATE outbox SET headers = '{"tenant":"acme"}'`)
	if n, err := s.Requeue(t.Context(), "e1"); n != 1 || err != nil {
		t.Fatalf("requeued %d, %v", n, err)
	}
	equal(t, "events", m.drain(), []string{"e1"})
}

func TestField_113_FetchIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *sqlite.Config) { c.Payload = sqlite.Bytes })
	const size, count = 1 << 20, 40
	big := make([]byte, size)
	for i := range count {
		m := message("a", fmt.Sprint("e", i))
		m.Payload = big
		enqueue(t, s, m)
	}
	m := join(t, s, "m1")
	req := m.request()
	req.MaxBytes = 4 << 20
	for drained := 0; drained < count; {
		records := m.do(req).Records
		bytes := 0
		for _, r := range records {
			bytes += r.Size()
		}
		if len(records) == 0 || bytes > req.MaxBytes {
			t.Fatalf("a reply of %d records, %d bytes; the limit is %d", len(records), bytes, req.MaxBytes)
		}
		m.settle(core.StatusPublished, records...)
		drained += len(records)
	}
}

func TestField_134_EmptyPayloads(t *testing.T) {
	t.Parallel()
	payloads := map[string][]byte{
		"nil": nil, "zero": {}, "null": []byte("null"), "object": []byte("{}"), "string": []byte(`""`),
		"space": []byte(" "), "spaced": []byte(" { } "), "binary": {0, 0xff},
	}
	notJSON := map[string]bool{"zero": true, "space": true, "binary": true}
	for _, kind := range []sqlite.Payload{sqlite.JSON, sqlite.Bytes} {
		s := open(t, func(c *sqlite.Config) { c.Payload = kind })
		for name, payload := range payloads {
			m := message("a", name)
			m.Payload = payload
			err := tryEnqueue(t.Context(), s, m)
			if refused := kind == sqlite.JSON && notJSON[name]; (err != nil) != refused {
				t.Errorf("%s table, payload %s: %v", kind, name, err)
			}
		}
		for _, r := range join(t, s, "m1").fetch().Records {
			want := payloads[r.EventID]
			if string(r.Payload) != string(want) || (r.Payload == nil) != (want == nil) {
				t.Errorf("%s table, payload %s: got %#v, want %#v", kind, r.EventID, r.Payload, want)
			}
		}
	}
}

func TestField_144_HeaderValues(t *testing.T) {
	t.Parallel()
	s := open(t)
	m := message("a", "e1")
	m.Headers = map[string]string{
		"empty": "", "space": " ", "long": strings.Repeat("x", 5000), "newline": "a\r\nb", "html": `<&>"\`,
	}
	enqueue(t, s, m)
	if got := join(t, s, "m1").fetch().Records[0].Headers; !maps.Equal(got, m.Headers) {
		t.Errorf("got %v", got)
	}
}

func TestField_149_RequeueKeepsTheEvent(t *testing.T) {
	t.Parallel()
	s := open(t)
	want := message("a", "e1")
	want.Topic = "orders"
	want.Headers = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "content-type": "application/json"}
	enqueue(t, s, want)
	m := join(t, s, "m1")
	m.settle(core.StatusParked, m.fetch().Records...)
	if n, err := s.Requeue(t.Context(), "e1"); n != 1 || err != nil {
		t.Fatalf("requeued %d, %v", n, err)
	}
	got := m.fetch(fromStart).Records[0]
	if got.EventID != want.EventID || got.Topic != want.Topic || got.Key().AggregateID != "a" ||
		!maps.Equal(got.Headers, want.Headers) || string(got.Payload) != string(want.Payload) || got.Attempts != 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
