package brokertest

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/core"
)

func cancelCases() []Case {
	return []Case{
		{"Publish/ReturnsSoonAfterCtxEnds", cancelReturnsSoon},
		{"Check/ReturnsSoonAfterCtxEnds", cancelCheck},
		{"Publish/NothingOfACancelledCallLandsAfterTheNextCallOfItsKey", cancelLateWrite},
	}
}

// A call never outlives its context by more than a moment, whatever the network does.
func cancelReturnsSoon(t T, h Harness) {
	f := start(t, h)
	ended, cancel := context.WithCancel(f.Context())
	cancel()
	batch := f.prepare(f.spread(f.fit(3))...)
	f.await(ended, f.begin(ended, batch), len(batch), f.harness.Soon)
	f.needs(f.server.Hang != nil, "Hang")
	f.deliver(f.record("before"))

	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	records := f.spread(f.fit(3))
	done, release := f.hangingCall(ctx, f.prepare(records...))
	cancel()
	results := f.await(ctx, done, len(records), f.harness.Soon)
	for i, r := range results {
		if r.Outcome == core.OutcomeDelivered {
			f.Errorf("message %d is reported as delivered while nothing reaches the server", i)
		}
	}
	release()
}

// hangingCall begins a call while the network swallows everything, and returns once it has.
func (f *fixture) hangingCall(ctx context.Context, batch []core.Prepared) (done <-chan []core.Result, release func()) {
	f.Helper()
	caught, release := f.server.Hang()
	f.Cleanup(release)
	done = f.begin(ctx, batch)
	if _, ok := receive(f.brief().Done(), caught, f.harness.Patience); !ok {
		f.Fatalf("the network hangs, but the call has sent nothing in %v", f.harness.Patience)
	}
	return done, release
}

// Check ends with its context too, whatever the network does.
func cancelCheck(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Hang != nil, "Hang")
	_, release := f.server.Hang()
	f.Cleanup(release)
	ctx, done := f.brief(), make(chan error, 1)
	go func() { done <- f.broker.Check(ctx) }()
	if _, ok := receive(ctx.Done(), done, f.harness.Soon); !ok {
		f.Errorf("Check has not returned %v after its context ended", f.harness.Soon)
	}
	release()
}

// A write that arrives late would overtake what was published since. What cannot be recalled is torn down before the
// next call of its key returns.
func cancelLateWrite(t T, h Harness) {
	f := start(t, h)
	var rounds [5]struct {
		records  []*core.Record
		atReturn int // how many copies there were when the next call had returned
	}
	for i := range rounds {
		key := fmt.Sprintf("late-%d", i)
		records := f.records(key, f.room(2))
		batch := f.prepare(records...)
		f.deliver(f.record("warm"))
		f.cancelled(i, batch)
		clear(batch) // the caller's again

		next := append(records[:len(records):len(records)], f.record(key))[:f.room(3)]
		f.eventuallyDelivered("publishing after a cancelled call", next...)
		rounds[i].records, rounds[i].atReturn = next, f.read(f.topic).copies(next...)
	}
	f.settle()
	l := f.read(f.topic)
	for _, r := range rounds {
		if n := l.copies(r.records...) - r.atReturn; n > 0 {
			f.Errorf("%d messages of a cancelled call were stored after the next call of their key had returned", n)
		}
		f.wantOrder(l, r.records)
	}
}

// settle gives whatever is still on its way the chance to arrive: other calls go through, time passes, and all is
// closed.
func (f *fixture) settle() {
	f.Helper()
	f.deliver(f.record("other"))
	<-f.brief().Done()
	f.deliver(f.record("other"))
	if err := f.broker.Close(f.patient()); err != nil {
		f.Errorf("Close: %v", err)
	}
}

// cancelled makes a call that is cancelled on the way: while the network hangs or, without Hang, at some moment.
func (f *fixture) cancelled(round int, batch []core.Prepared) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	if f.server.Hang == nil {
		stop := time.AfterFunc(time.Duration(round)*100*time.Microsecond, cancel)
		defer stop.Stop()
		f.await(ctx, f.begin(ctx, batch), len(batch), f.harness.Patience)
		return
	}
	done, release := f.hangingCall(ctx, batch)
	cancel()
	f.await(ctx, done, len(batch), f.harness.Patience)
	release()
}
