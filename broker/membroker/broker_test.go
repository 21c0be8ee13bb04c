package membroker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func TestMessages_AreAsConsumersSeeThem(t *testing.T) {
	t.Parallel()
	b := membroker.New(membroker.Config{})
	r := record("a", 7)
	r.Headers = map[string]string{"tenant": "acme"}
	publish(t.Context(), t, b, r)
	r.Payload[0], r.Headers["tenant"] = 'X', "changed later"

	got := b.Messages("orders")
	if len(got) != 1 {
		t.Fatalf("%d messages, want 1", len(got))
	}
	m := got[0]
	want(t, "payload", string(m.Payload), `{"n":7}`)
	want(t, "token", m.Token, "a")
	want(t, "key", m.Key.String(), "orders order/a")
	want(t, "header", m.Headers["tenant"], "acme")
	want(t, "outbox id", m.Headers[core.HeaderOutboxID], "7")
	if m.RecordID != 7 || m.Destination != "orders" || m.EventID != "a-7" {
		t.Errorf("%+v", m)
	}
}

func TestPrepare_RefusesWhatCanNeverBeStored(t *testing.T) {
	t.Parallel()
	b := membroker.New(membroker.Config{MaxMessageBytes: 100, Strategy: refusing{}})
	large, unrouted, noTopic := record("a", 1), record("refused", 2), record("c", 3)
	large.Payload = make([]byte, 100)
	noTopic.Topic = ""
	for r, text := range map[*core.Record]string{
		large:    `event "a-1" has 128 bytes, the limit MaxMessageBytes is 100`,
		unrouted: `route event "refused-2": no route for "refused"`,
		noTopic:  `route event "c-3": the topic is empty`,
	} {
		_, err := b.Prepare(r)
		var e *core.PublishError
		if !errors.As(err, &e) || e.Class != core.ClassPermanent || e.Scope != core.ScopeMessage {
			t.Fatalf("%v, want permanent of the message", err)
		}
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want it to contain %q", err, text)
		}
	}
}

// refusing routes everything except the aggregate "refused".
type refusing struct{ ordering.RecordKey }

func (s refusing) Route(in ordering.Input) (ordering.Route, error) {
	if in.AggregateID == "refused" {
		return ordering.Route{}, errors.New(`no route for "refused"`)
	}
	return s.RecordKey.Route(in)
}

func TestServer_IsSharedAndOutlivesItsBrokers(t *testing.T) {
	t.Parallel()
	server := membroker.NewServer()
	a, b := membroker.New(membroker.Config{Server: server}), membroker.New(membroker.Config{Server: server})
	publish(t.Context(), t, a, record("a", 1))
	publish(t.Context(), t, b, record("a", 2))
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t.Context(), t, b, record("a", 3))
	want(t, "log", log(b), "a-1 a-2 a-3")
	want(t, "destinations", strings.Join(server.Destinations(), " "), "orders")
	if len(server.All()["orders"]) != 3 || server.Count() != 3 {
		t.Errorf("%d messages of %d, want 3", len(server.All()["orders"]), server.Count())
	}
}

func TestTopology_DeclaresAndVerifies(t *testing.T) {
	t.Parallel()
	b := membroker.New(membroker.Config{Server: membroker.NewServer("payments")})
	want(t, "before", outcomes(publish(t.Context(), t, b, record("a", 1))), "rejected")
	err := b.Verify(t.Context(), "payments", "orders", "refunds")
	if err == nil || strings.Contains(err.Error(), "payments") ||
		!strings.Contains(err.Error(), `"orders" does not exist`) || !strings.Contains(err.Error(), `"refunds"`) {
		t.Errorf("Verify: %v, want orders and refunds", err)
	}
	if err := b.Declare(t.Context(), "orders", "refunds"); err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(t.Context(), "payments", "orders", "refunds"); err != nil {
		t.Error(err)
	}
	want(t, "after", outcomes(publish(t.Context(), t, b, record("a", 1))), "delivered")
}

func TestMisuse_NamesWhatTheCallerDoesWrong(t *testing.T) {
	t.Parallel()
	elsewhere := record("z", 1)
	elsewhere.Topic = "payments"
	for _, c := range []struct {
		name   string
		config membroker.Config
		batch  []*core.Record
		want   string
	}{
		{"nothing", membroker.Config{MaxBatch: 2}, []*core.Record{record("a", 1), record("b", 1)}, ""},
		{"empty", membroker.Config{}, nil, "the batch is empty"},
		{"too many", membroker.Config{MaxBatch: 1}, []*core.Record{record("a", 1), record("b", 1)}, "MaxBatch is 1"},
		{"too large", membroker.Config{MaxBatchBytes: 50}, []*core.Record{record("a", 1), record("b", 1)}, "MaxBatchBytes is 50"},
		{"key twice", membroker.Config{}, []*core.Record{record("a", 1), record("a", 2)}, "key orders order/a twice in one batch"},
		{
			"key twice is fine",
			membroker.Config{KeyGuarantee: core.PrefixPerKey},
			[]*core.Record{record("a", 1), record("a", 2)},
			"",
		},
		{"mixed", membroker.Config{}, []*core.Record{record("a", 1), elsewhere}, `destinations "orders" and "payments"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := membroker.New(c.config)
			publish(t.Context(), t, b, c.batch...)
			wantMisuse(t, b, c.want)
		})
	}
}

func TestMisuse_SeesCallsAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		second *core.Record
		limit  int
		want   string
	}{
		{record("b", 1), 2, ""},
		{record("b", 1), 1, "2 calls at once, MaxInFlight is 1"},
		{record("a", 2), 2, "key orders order/a in two calls at once"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				b := membroker.New(membroker.Config{
					MaxInFlight: c.limit, Script: membroker.Always(membroker.Hold(release)),
				})
				for _, r := range []*core.Record{record("a", 1), c.second} {
					batch := prepare(t, b, r)
					go b.PublishBatch(t.Context(), batch)
				}
				synctest.Wait()
				close(release)
				synctest.Wait()
				wantMisuse(t, b, c.want)
			})
		})
	}
}

func wantMisuse(t *testing.T, b *membroker.Broker, text string) {
	t.Helper()
	err := b.Misuse()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("misuse: %v, want %q", err, text)
	}
}

// publishHundred returns a function that prepares and publishes a hundred records in one call.
func publishHundred(b *membroker.Broker) func() {
	records := make([]*core.Record, 100)
	for i := range records {
		records[i] = record("a", int64(i+1))
	}
	batch, ctx := make([]core.Prepared, len(records)), context.Background()
	return func() {
		for i, r := range records {
			batch[i], _ = b.Prepare(r)
		}
		b.PublishBatch(ctx, batch)
	}
}

func TestDiscard_Counts(t *testing.T) {
	t.Parallel()
	b := membroker.New(membroker.Config{Discard: true})
	publishAll := publishHundred(b)
	publishAll()
	if b.Count() != 100 || log(b) != "" {
		t.Errorf("%d messages counted, stored %q; want 100 and none", b.Count(), log(b))
	}
	b.SetScript(membroker.Always(membroker.Reject(errRefused, 0)))
	publishAll()
	if got := b.Count() - 100; got != 99 {
		t.Errorf("%d messages accepted of 100 with one rejected", got)
	}
}

// Not parallel: counting allocations needs the process for itself.
func TestDiscard_CostsNextToNothing(t *testing.T) { //nolint:paralleltest // see above
	b := membroker.New(membroker.Config{Discard: true})
	if perMessage := testing.AllocsPerRun(10, publishHundred(b)) / 100; perMessage > 0.1 {
		t.Errorf("%v allocations for each message", perMessage)
	}
}

func TestClose_WaitsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, done := make(chan struct{}), make(chan []core.Result)
		b := membroker.New(membroker.Config{Script: membroker.Always(membroker.Hold(release))})
		batch := prepare(t, b, record("a", 1))
		go func() { done <- b.PublishBatch(t.Context(), batch) }()
		synctest.Wait()

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Close(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Close with a call in progress: %v, want it to say so", err)
		}
		closed := make(chan error)
		go func() { closed <- b.Close(t.Context()) }()
		synctest.Wait()
		close(release)
		want(t, "the call in progress", outcomes(<-done), "delivered")
		if err := <-closed; err != nil {
			t.Error(err)
		}
		result := b.PublishBatch(t.Context(), batch)[0]
		if result.Outcome != core.OutcomeRejected || !errors.Is(result.Err, core.ErrClosed) {
			t.Errorf("after Close: %v: %v", result.Outcome, result.Err)
		}
	})
}
