package sqs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// A reply of 200 may refuse single entries; each has its own consequence.
func TestField_018_RefusedEntriesAreRead(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	records := spread(10)
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		if r.Action != "SendMessageBatch" || r.N > 1 {
			return sqsfake.Fault{}
		}
		return sqsfake.Fault{Entries: map[int]*sqsfake.Error{
			3: sqsfake.Throttled(), 6: sqsfake.Invalid("the message is invalid"),
		}}
	})
	results := publish(t, broker, records...)
	for i, r := range results {
		switch i {
		case 3:
			wantError(t, r, core.ClassThrottled, core.ScopeKey, core.OutcomeRejected)
		case 6:
			wantError(t, r, core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected)
			if text := r.Err.Error(); !strings.Contains(text, "the message is invalid") ||
				!strings.Contains(text, records[6].EventID) {
				t.Errorf("the error names neither the reason nor the event: %v", r.Err)
			}
		default:
			if r.Outcome != core.OutcomeDelivered {
				t.Errorf("record %d: %v: %v", i, r.Outcome, r.Err)
			}
		}
	}
	deliver(t, broker, records[3])
	wantSame(t, "stored", eventIDs(t, fake, "orders.fifo"), idsOf(slices.Delete(slices.Clone(records), 6, 7)...))
}

// Within five minutes SQS would swallow a replay that had the id of the original.
func TestField_042_ReplayHasANewDeduplicationID(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	r := oneKey("k", 1)[0]
	deliver(t, broker, r)
	again := *r
	again.Replay = 1
	deliver(t, broker, &again)
	deliver(t, broker, &again) // a repeat of the replay is one again
	stored := fake.Messages("orders.fifo")
	if len(stored) != 2 {
		t.Fatalf("%d copies are stored, want 2", len(stored))
	}
	if got, want := stored[1].DeduplicationID, r.EventID+".r1"; got != want {
		t.Errorf("the de-duplication id of the replay is %q, want %q", got, want)
	}
	if got := eventIDs(t, fake, "orders.fifo"); got[0] != r.EventID || got[1] != r.EventID {
		t.Errorf("the event ids are %q, want %q twice", got, r.EventID)
	}
}

// An event whose own id looks like that of a replay is not taken for one.
// Content-based de-duplication would make one of two equal bodies.
func TestField_043_EqualBodiesAreTwoMessages(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", map[string]string{"ContentBasedDeduplication": "true"})
	broker := open(t, configOf(fake.URL()))
	records := oneKey("k", 2)
	records[0].Payload, records[1].Payload = []byte("{}"), []byte("{}")
	deliver(t, broker, records...)
	stored := fake.Messages("orders.fifo")
	if len(stored) != 2 {
		t.Fatalf("%d messages are stored, want 2", len(stored))
	}
	for i, m := range stored {
		if m.DeduplicationID != records[i].EventID {
			t.Errorf("de-duplication id %q, want the event id %q", m.DeduplicationID, records[i].EventID)
		}
	}
}

// The rule that the package documents: the id is that of the event, whatever its key and the queue's scope. An outbox
// does not take one event id for two keys (core.EventConflictError), so none is dropped.
// An error of one request says nothing about the request before it.
func TestField_057_AcceptedRequestStaysAccepted(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	config := configOf(fake.URL())
	config.Concurrency = 1
	broker := open(t, config)
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		return sqsfake.Fault{LoseReply: r.Action == "SendMessageBatch" && r.N == 2}
	})
	records := spread(25)
	results := publish(t, broker, records...)
	for i, r := range results {
		want := core.OutcomeDelivered
		switch {
		case i >= 20:
			want = core.OutcomeSkipped
		case i >= 10:
			want = core.OutcomeUnknown
		}
		if r.Outcome != want {
			t.Errorf("record %d is %v, want %v", i, r.Outcome, want)
		}
		if want != core.OutcomeDelivered {
			wantError(t, r, core.ClassUnavailable, core.ScopeDestination, want)
		}
	}
	deliver(t, broker, records[10:]...)
	wantSame(t, "stored", eventIDs(t, fake, "orders.fifo"), idsOf(records...))
}

// Bytes that are no text made checksums differ, so that every attempt left a copy.
// What comes after a refused message of its group waits; other groups go on.
func TestField_076_LaterEntriesOfTheGroupWait(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	g, h := oneKey("G", 3), oneKey("H", 2)
	fake.SetScript(refuseEvent(g[1].EventID, 1))
	results := publish(t, broker, g[0], h[0], g[1], h[1], g[2])
	if got, want := outcomes(results), "delivered delivered unknown delivered skipped"; got != want {
		t.Errorf("outcomes %s, want %s", got, want)
	}
	wantError(t, results[4], core.ClassTransient, core.ScopeKey, core.OutcomeSkipped)
	deliver(t, broker, g[1], g[2])
	wantOrder(t, fake, g)
	wantOrder(t, fake, h)
}

// Many requests in a row are throttled: nothing is charged to any message, and all go out in the end.
func TestField_122_ThrottlingSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	records := spread(100)
	fake.Refuse(1000, sqsfake.Throttled())
	for i, r := range publish(t, broker, records...) {
		if r.Outcome == core.OutcomeDelivered || r.Outcome == core.OutcomeUnknown {
			t.Fatalf("record %d is %v", i, r.Outcome)
		}
		wantError(t, r, core.ClassThrottled, core.ScopeDestination, r.Outcome)
	}
	fake.Refuse(0, nil)
	deliver(t, broker, records...)
	wantSame(t, "stored", eventIDs(t, fake, "orders.fifo"), idsOf(records...))
}

// The limit is the queue's, for a message and for all of a request, attributes included.
func TestField_123_RequestsFitTheLimitOfTheQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, rows, bytes, requests int
	}{
		{262_144, 5, 200_000, 5},
		{262_144, 10, 30_000, 2},
		{1_048_576, 5, 200_000, 1},
		{1_048_576, 10, 30_000, 1},
	} {
		t.Run(fmt.Sprintf("%d/%dx%d", c.limit, c.rows, c.bytes), func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, sqsfake.Config{MaxMessageBytes: c.limit})
			broker := openFake(t, fake)
			records := spread(c.rows)
			for _, r := range records {
				r.Payload = []byte(strings.Repeat("x", c.bytes))
			}
			deliver(t, broker, records...)
			if n := fake.Count("SendMessageBatch"); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			wantSame(t, "stored", eventIDs(t, fake, "orders.fifo"), idsOf(records...))
		})
	}
}

// A message above the queue's limit is refused before it is sent, alone.
func TestMessageAboveTheLimitOfTheQueue(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{MaxMessageBytes: 10_000})
	broker := openFake(t, fake)
	records := spread(5)
	records[2].Payload = []byte(strings.Repeat("x", 10_000))
	results := publish(t, broker, records...)
	if got, want := outcomes(results), "delivered delivered rejected delivered delivered"; got != want {
		t.Errorf("outcomes %s, want %s", got, want)
	}
	wantError(t, results[2], core.ClassPermanent, core.ScopeMessage, core.OutcomeRejected)
	if !strings.Contains(results[2].Err.Error(), "10000") {
		t.Errorf("the error does not name the limit: %v", results[2].Err)
	}
}

// Standard queues refuse group ids, FIFO queues refuse messages without.
func TestField_125_GroupIDsOnlyForFIFO(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	standard := createQueue(t, fake, "plain", nil)
	fifo := createQueue(t, fake, "strict.fifo", nil)
	config := configOf(fake.URL())
	config.QueueURLs = map[string]string{"orders": standard}
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "ordering.None") {
		t.Errorf("a standard queue with an ordering strategy: %v, want an error that tells what to do", err)
	}
	config.Strategy = ordering.None{}
	config.QueueURLs["strict"] = fifo
	broker := open(t, config)
	deliver(t, broker, oneKey("k", 3)...)
	strict := brokertest.NewRecord("strict", "k", 1)
	deliver(t, broker, strict)
	for _, m := range fake.Messages("plain") {
		if m.GroupID != "" || m.DeduplicationID != "" {
			t.Errorf("group %q and de-duplication id %q for a standard queue", m.GroupID, m.DeduplicationID)
		}
	}
	if n := len(fake.Messages("plain")); n != 3 {
		t.Errorf("%d of 3 messages are in the standard queue", n)
	}
	if m := fake.Messages("strict.fifo")[0]; m.GroupID != strict.EventID || m.DeduplicationID != strict.EventID {
		t.Errorf("group %q and de-duplication id %q without a strategy, want the event id", m.GroupID, m.DeduplicationID)
	}
}

// A group that fails does not fail the others of its request.
func TestField_130_OtherGroupsGoOn(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	g1, g2, g3 := oneKey("G1", 2), oneKey("G2", 2), oneKey("G3", 2)
	fake.SetScript(refuseEvent(g1[0].EventID, 1))
	results := publish(t, broker, g1[0], g2[0], g3[0], g1[1], g2[1], g3[1])
	if got, want := outcomes(results), "unknown delivered delivered skipped delivered delivered"; got != want {
		t.Errorf("outcomes %s, want %s", got, want)
	}
}

// SQS takes the characters of XML only.
// Group ids are 1 to 128 visible ASCII characters; the aggregate's id itself travels beside it.
// SQS takes ten attributes, and tracing agents add theirs on the way.
// SQS refuses empty values, and values and names of other characters.
// Topics that differ have queues that differ, by names that SQS takes.
// wantError checks what a result says.
func wantError(tb testing.TB, r core.Result, class core.Class, scope core.Scope, outcome core.Outcome) {
	tb.Helper()
	e := publishErrorOf(tb, r)
	if e.Class != class || e.Scope != scope || r.Outcome != outcome {
		tb.Errorf("%v, %v of the %v, want %v, %v of the %v: %v", r.Outcome, e.Class, e.Scope, outcome, class, scope, r.Err)
	}
}

// wantOrder checks that the records are stored once each in their order.
func wantOrder(tb testing.TB, fake *sqsfake.Server, records []*core.Record) {
	tb.Helper()
	want := idsOf(records...)
	got := slices.DeleteFunc(eventIDs(tb, fake, "orders.fifo"), func(id string) bool { return !slices.Contains(want, id) })
	if !slices.Equal(got, want) {
		tb.Errorf("stored %q, want %q", got, want)
	}
}

// refuseEvent refuses one event n times.
func refuseEvent(eventID string, n int) sqsfake.Script {
	return func(r sqsfake.Request) sqsfake.Fault {
		for i, e := range r.Entries {
			if e.DeduplicationID == eventID && n > 0 {
				n-- // tests use it for one request at a time
				return sqsfake.Fault{Entries: map[int]*sqsfake.Error{i: sqsfake.InternalError()}}
			}
		}
		return sqsfake.Fault{}
	}
}
