package brokertest

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/core"
)

// fixture is one case at work: a server, a broker and a topic.
type fixture struct {
	T
	harness Harness
	server  Server
	broker  core.Broker
	topic   string
	lastID  int64
}

// start makes the server and opens a broker.
func start(t T, h Harness) *fixture {
	t.Helper()
	f := startServer(t, h)
	f.broker = f.open()
	f.topic = f.server.Topic()
	return f
}

// startServer makes the server alone.
func startServer(t T, h Harness) *fixture {
	t.Helper()
	f := &fixture{T: t, harness: h.withDefaults(), server: h.Start(t)}
	if f.server.Open == nil || f.server.Topic == nil || f.server.Read == nil {
		t.Fatalf("brokertest: Server.Open, Server.Topic and Server.Read are required")
	}
	if (f.server.Down == nil) != (f.server.Up == nil) {
		t.Fatalf("brokertest: Server.Down and Server.Up go together")
	}
	return f
}

// open opens a broker and closes it at the end.
func (f *fixture) open() core.Broker {
	f.Helper()
	b, err := f.server.Open()
	if err != nil {
		f.Fatalf("open a broker: %v", err)
	}
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.Context()), f.harness.Patience)
		defer cancel()
		_ = b.Close(ctx) // cases about Close look at its error
	})
	return b
}

// needs skips the case when a fault is not available.
func (f *fixture) needs(available bool, what string) {
	f.Helper()
	if !available {
		f.Skipf("Server.%s is nil", what)
	}
}

// patient returns a context for calls that are to succeed.
func (f *fixture) patient() context.Context { return f.timeout(f.harness.Patience) }

// brief returns a context for calls that cannot succeed.
func (f *fixture) brief() context.Context { return f.timeout(f.harness.Timeout) }

func (f *fixture) timeout(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), d)
	f.Cleanup(cancel)
	return ctx
}

// record returns a new record of a key of the fixture's topic.
func (f *fixture) record(key string) *core.Record { return f.recordOn(f.topic, key) }

func (f *fixture) recordOn(topic, key string) *core.Record {
	f.lastID++
	return NewRecord(topic, key, f.lastID)
}

// records returns n new records of one key.
func (f *fixture) records(key string, n int) []*core.Record {
	out := make([]*core.Record, n)
	for i := range out {
		out[i] = f.record(key)
	}
	return out
}

// spread returns n new records of as many keys.
func (f *fixture) spread(n int) []*core.Record {
	out := make([]*core.Record, n)
	for i := range out {
		out[i] = f.record(fmt.Sprintf("spread-%d", i))
	}
	return out
}

// room is how many messages of one key may be in a call, at most n.
func (f *fixture) room(n int) int {
	if f.broker.Capabilities().KeyGuarantee == core.OnePerKey {
		return 1
	}
	return f.fit(n)
}

// fit is how many messages may be in a call, at most n.
func (f *fixture) fit(n int) int {
	if limit := f.broker.Capabilities().MaxBatch; limit > 0 {
		return min(n, limit)
	}
	return n
}

// prepare prepares records that are in order.
func (f *fixture) prepare(records ...*core.Record) []core.Prepared {
	f.Helper()
	batch := make([]core.Prepared, len(records))
	for i, r := range records {
		p, err := f.broker.Prepare(r)
		if err != nil {
			f.Fatalf("Prepare of a record in order (event %s, topic %q): %v", r.EventID, r.Topic, err)
		}
		batch[i] = p
	}
	return batch
}

// publish makes one call.
func (f *fixture) publish(ctx context.Context, records ...*core.Record) []core.Result {
	f.Helper()
	return f.await(ctx, f.begin(ctx, f.prepare(records...)), len(records), f.harness.Patience)
}

// begin starts one call; it gets the results, or nothing when the call never returns.
func (f *fixture) begin(ctx context.Context, batch []core.Prepared) <-chan []core.Result {
	done := make(chan []core.Result, 1)
	go func() { done <- f.broker.PublishBatch(ctx, batch) }()
	return done
}

// await waits for a call until grace after its context has ended.
func (f *fixture) await(ctx context.Context, done <-chan []core.Result, n int, grace time.Duration) []core.Result {
	f.Helper()
	results, ok := receive(ctx.Done(), done, grace)
	if !ok {
		f.Fatalf("PublishBatch has not returned %v after its context ended", grace)
	}
	if len(results) != n {
		f.Fatalf("PublishBatch returned %d results for %d messages", len(results), n)
	}
	return results
}

// receive waits for a value; once ended is closed, no longer than grace.
func receive[V any](ended <-chan struct{}, values <-chan V, grace time.Duration) (v V, ok bool) {
	select {
	case v = <-values:
		return v, true
	case <-ended:
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case v = <-values:
		return v, true
	case <-t.C:
		return v, false
	}
}

// deliver publishes records in calls as large as allowed; all must be delivered.
func (f *fixture) deliver(records ...*core.Record) {
	f.Helper()
	for _, call := range f.calls(records) {
		for i, r := range f.publish(f.patient(), call...) {
			if r.Outcome != core.OutcomeDelivered {
				f.Fatalf("event %s: %v (%v), want delivered", call[i].EventID, r.Outcome, r.Err)
			}
		}
	}
}

// calls cuts records into calls that the capabilities allow, keeping their order.
func (f *fixture) calls(records []*core.Record) [][]*core.Record {
	f.Helper()
	caps := f.broker.Capabilities()
	var (
		out   [][]*core.Record
		call  []*core.Record
		keys  = map[string]bool{}
		total int
	)
	for _, r := range records {
		size := f.prepare(r)[0].Bytes
		full := caps.MaxBatch > 0 && len(call) == caps.MaxBatch ||
			caps.MaxBatchBytes > 0 && total+size > caps.MaxBatchBytes ||
			caps.KeyGuarantee == core.OnePerKey && keys[r.AggregateID]
		if full && len(call) > 0 {
			out = append(out, call)
			call, keys, total = nil, map[string]bool{}, 0
		}
		call, total = append(call, r), total+size
		keys[r.AggregateID] = true
	}
	return append(out, call)
}

// eventually tries until it works, as a dispatcher does, but not for longer than Patience.
func (f *fixture) eventually(what string, try func() error) {
	f.Helper()
	deadline := f.patient()
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-deadline.Done():
			t.Stop()
			f.Fatalf("%s does not work in %v: %v", what, f.harness.Patience, err)
		}
	}
}

// eventuallyDelivered publishes the records in one call until all of them are delivered.
func (f *fixture) eventuallyDelivered(what string, records ...*core.Record) {
	f.Helper()
	f.eventually(what, func() error {
		for _, r := range f.publish(f.patient(), records...) {
			if r.Outcome != core.OutcomeDelivered {
				return fmt.Errorf("%v: %w", r.Outcome, r.Err)
			}
		}
		return nil
	})
}
