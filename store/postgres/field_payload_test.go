package postgres_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

func payloadOf(kind postgres.Payload) func(*postgres.Config) {
	return func(c *postgres.Config) { c.Payload = kind }
}

// roundTrip sends one payload through the table.
func roundTrip(t *testing.T, kind postgres.Payload, payload string) string {
	t.Helper()
	s := open(t, payloadOf(kind))
	m := message("a", "e1")
	m.Payload = []byte(payload)
	enqueue(t, s, m)
	return string(join(t, s, "m").fetch()[0].Payload)
}

// refused enqueues a payload that must be refused, and goes on with the transaction.
func refused(t *testing.T, s *postgres.Store, payload, why string) {
	t.Helper()
	err := s.InTx(t.Context(), func(tx pgx.Tx, box core.Enqueuer) error {
		m := message("a", "bad")
		m.Payload = []byte(payload)
		_, err := box.Enqueue(t.Context(), m)
		var invalid *core.InvalidMessageError
		if !errors.As(err, &invalid) || invalid.Field != "Payload" || !strings.Contains(invalid.Reason, why) {
			t.Errorf("payload %.40q: want a *core.InvalidMessageError about %q, got %v", payload, why, err)
		}
		return tx.QueryRow(t.Context(), `SELECT 1`).Scan(new(int))
	})
	if err != nil {
		t.Errorf("payload %.40q: the transaction is not usable: %v", payload, err)
	}
}

// jsonb cannot hold the NUL escape. It is refused by name, never stripped; json and bytea keep it.
func TestField_135_NULEscape(t *testing.T) {
	t.Parallel()
	s := open(t, payloadOf(postgres.JSONB))
	for _, payload := range []string{`{"a":"x\u0000y"}`, `{"a\u0000":1}`, `"\u0000"`} {
		refused(t, s, payload, `\u0000`)
	}
	refused(t, s, `"\ud83d"`, "surrogate")
	refused(t, s, `"\ude00\ud83d"`, "surrogate")
	refused(t, s, `[1e200000]`, "exponent")
	refused(t, s, "\"\xff\"", "UTF-8")
	for _, payload := range []string{`{"a": "x\\u0000y"}`, `"\ud83d\ude00"`, `{"true": [1e10, true, false], "E": "e9"}`, `[1E-200]`} {
		m := message("a", fmt.Sprintf("ok %x", payload))
		m.Payload = []byte(payload)
		enqueue(t, s, m)
	}
	const exact = `{"a\u0000":"x\u0000y"}`
	for _, kind := range []postgres.Payload{postgres.JSON, postgres.Bytes} {
		if got := roundTrip(t, kind, exact); got != exact {
			t.Errorf("%s: %q came back as %q", kind, exact, got)
		}
	}
}

// One bad message of a batch is named before anything is sent, so that the transaction stays usable.
func TestField_136_OneBadMessageOfABatch(t *testing.T) {
	t.Parallel()
	s := open(t, payloadOf(postgres.JSONB))
	err := s.InTx(t.Context(), func(_ pgx.Tx, box core.Enqueuer) error {
		batch := numbered(50)
		batch[17].Payload = []byte(`{"a":"\u0000"}`)
		_, err := box.Enqueue(t.Context(), batch...)
		var invalid *core.InvalidMessageError
		if !errors.As(err, &invalid) || invalid.Index != 17 {
			t.Errorf("want an error that names message 17, got %v", err)
		}
		_, err = box.Enqueue(t.Context(), numbered(3)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(join(t, s, "m").fetch()); n != 3 {
		t.Errorf("%d events, want the 3 of the second call", n)
	}
}

// Digits are the same on the other side.
func TestField_138_LargeNumbers(t *testing.T) {
	t.Parallel()
	const text = `{"n":9007199254740993,"m":12345678901234567890,"d":0.1234567890123456789,"e":1e400}`
	for _, kind := range []postgres.Payload{postgres.JSON, postgres.Bytes} {
		if got := roundTrip(t, kind, text); got != text {
			t.Errorf("%s: %s came back as %s", kind, text, got)
		}
	}
	got := roundTrip(t, postgres.JSONB, text)
	for _, digits := range []string{"9007199254740993", "12345678901234567890", "0.1234567890123456789", "1" + strings.Repeat("0", 400)} {
		if !strings.Contains(got, digits) {
			t.Errorf("jsonb: %s lacks %s", got, digits)
		}
	}
}

// json and bytea keep the text, for signatures; jsonb keeps the value, as documented.
func TestField_139_ExactBytes(t *testing.T) {
	t.Parallel()
	const text = `{ "b":1, "a":2, "a":3, "x":1.50, "y":1E2 }`
	for _, kind := range []postgres.Payload{postgres.JSON, postgres.Bytes} {
		if got := roundTrip(t, kind, text); got != text {
			t.Errorf("%s: %s came back as %s", kind, text, got)
		}
	}
	if got, want := roundTrip(t, postgres.JSONB, text), `{"a": 3, "b": 1, "x": 1.50, "y": 100}`; got != want {
		t.Errorf("jsonb: came back as %s, documented is %s", got, want)
	}
}

func TestField_140_BinaryPayload(t *testing.T) {
	t.Parallel()
	payload := "\x0a\x02\xff\xfe\x00"
	if got := roundTrip(t, postgres.Bytes, payload); got != payload {
		t.Errorf("%q came back as %q", payload, got)
	}
}

func TestField_150_FourByteCharacters(t *testing.T) {
	t.Parallel()
	s := open(t)
	m := core.Message{
		EventID: "🦊1", Topic: "🦊2", AggregateType: "🦊3", AggregateID: "🦊4", EventType: "🦊5",
		Payload: []byte(`{"🦊": "🦊"}`), Headers: map[string]string{"🦊": "🦊6"},
	}
	enqueue(t, s, m)
	f := join(t, s, "m")
	got := f.fetch()[0]
	if got.EventID != m.EventID || got.Topic != m.Topic || got.Key().String() != "🦊2 🦊3/🦊4" || got.EventType != m.EventType ||
		!bytes.Equal(got.Payload, m.Payload) || got.Headers["🦊"] != "🦊6" {
		t.Errorf("came back as %+v", got.Message)
	}
	req := f.settlement(core.StatusFailed, got)
	req.Items[0].Reason = "🦊7"
	if _, err := s.Settle(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if reason := queryOne[string](t, s, `SELECT last_error FROM {outbox}`); reason != "🦊7" {
		t.Errorf("the reason came back as %q", reason)
	}
}

// Deep JSON passes or is refused at enqueue.
func TestField_156_DeepJSON(t *testing.T) {
	t.Parallel()
	nested := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	s := open(t)
	for i, payload := range []string{nested("[", "", "]", 9_999), nested(`{"a":`, "1", "}", 9_999)} {
		if !json.Valid([]byte(payload)) {
			t.Fatal("not valid for Go")
		}
		m := message("a", fmt.Sprint("e", i))
		m.Payload = []byte(payload)
		enqueue(t, s, m)
	}
	if n := len(join(t, s, "m").fetch()); n != 2 {
		t.Errorf("%d of 2 deep payloads came back", n)
	}
	refused(t, s, nested("[", "", "]", 100_000), "not valid JSON")
	refused(t, s, nested(`{"a":`, "1", "}", 11_000), "not valid JSON")
	deep := nested("[", "", "]", 100_000)
	if got := roundTrip(t, postgres.Bytes, deep); got != deep {
		t.Error("bytea changed a deep payload")
	}
}
