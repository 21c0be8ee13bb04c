package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-outbox/outbox/core"
)

func closeCases() []Case {
	return []Case{
		{"Close/WaitsForCallsInProgress", closeWaits},
		{"Close/WritesNothingAfterItReturns", closeIsFinal},
		{"Close/EndsWithItsContext", closeEndsWithContext},
		{"Close/LaterCallsAreRejectedWithErrClosed", closeRejects},
		{"Close/TwiceIsNoError", closeTwice},
		{"Close/LeaksNoGoroutine", closeLeaksNothing},
	}
}

// Close lets a call that has begun come to its end.
func closeWaits(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Hang != nil, "Hang")
	f.deliver(f.record("before"))
	r := f.record("in progress")
	ctx := f.patient()
	done, release := f.hangingCall(ctx, f.prepare(r))
	closed := f.beginClose(f.patient())
	if err, ok := receive(f.brief().Done(), closed, 0); ok {
		f.Errorf("Close returned (%v) while a call was in progress", err)
	}
	release()
	result := f.await(ctx, done, 1, f.harness.Patience)[0]
	if err, ok := receive(f.patient().Done(), closed, 0); !ok {
		f.Errorf("Close has not returned %v after the last call", f.harness.Patience)
	} else if err != nil {
		f.Errorf("Close: %v", err)
	}
	if result.Outcome != core.OutcomeDelivered {
		f.Errorf("the call in progress ended with %v: %v", result.Outcome, result.Err)
	}
	f.wantAgreement(f.read(f.topic), []*core.Record{r}, []core.Result{result})
}

// beginClose closes the broker; the channel gets the error when Close returns.
func (f *fixture) beginClose(ctx context.Context) <-chan error {
	closed := make(chan error, 1)
	go func() { closed <- f.broker.Close(ctx) }()
	return closed
}

// After Close nothing is written any more, however many calls it met.
func closeIsFinal(t T, h Harness) {
	f := start(t, h)
	const workers, rounds = 4, 10
	var calls [workers][][]core.Prepared
	for w := range calls {
		for range rounds {
			calls[w] = append(calls[w], f.prepare(f.record(fmt.Sprintf("final-%d", w))))
		}
	}
	half, ctx := make(chan struct{}), f.patient()
	var wg sync.WaitGroup
	for w := range min(workers, max(f.broker.Capabilities().MaxInFlight, 1)) {
		wg.Go(func() {
			for i, batch := range calls[w] {
				if w == 0 && i == rounds/2 {
					close(half)
				}
				f.broker.PublishBatch(ctx, batch)
			}
		})
	}
	<-half
	if err := f.broker.Close(f.patient()); err != nil {
		f.Errorf("Close: %v", err)
	}
	atClose := len(f.read(f.topic))
	wg.Wait()
	if n := len(f.read(f.topic)); n > atClose {
		f.Errorf("%d messages were stored after Close had returned", n-atClose)
	}
}

// Close gives up waiting when its context ends, so that a service that hangs can still stop.
func closeEndsWithContext(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Hang != nil, "Hang")
	f.deliver(f.record("before"))
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	done, release := f.hangingCall(ctx, f.prepare(f.record("hanging")))
	ended, end := context.WithCancel(f.Context())
	end()
	if _, ok := receive(ended.Done(), f.beginClose(ended), f.harness.Soon); !ok {
		f.Errorf("Close has not returned %v after its context ended", f.harness.Soon)
	}
	cancel()
	f.await(ctx, done, 1, f.harness.Patience)
	release()
}

// Calls after Close are certainly not stored, and say why.
func closeRejects(t T, h Harness) {
	f := start(t, h)
	records := f.spread(f.fit(3))
	batch := f.prepare(records...)
	if err := f.broker.Close(f.patient()); err != nil {
		f.Fatalf("Close: %v", err)
	}
	ctx := f.patient()
	results := f.await(ctx, f.begin(ctx, batch), len(batch), f.harness.Patience)
	for i, r := range results {
		if r.Outcome != core.OutcomeRejected || !errors.Is(r.Err, core.ErrClosed) {
			f.Errorf("message %d: %v: %v, want rejected with core.ErrClosed", i, r.Outcome, r.Err)
		}
	}
	if n := f.read(f.topic).copies(records...); n > 0 {
		f.Errorf("%d messages were stored after Close", n)
	}
	if err := f.broker.Check(f.patient()); !errors.Is(err, core.ErrClosed) {
		f.Errorf("Check after Close: %v, want core.ErrClosed", err)
	}
}

// Close may be called again, and by many at once.
func closeTwice(t T, h Harness) {
	f := start(t, h)
	f.deliver(f.record("before"))
	first, second := f.beginClose(f.patient()), f.beginClose(f.patient())
	for _, closed := range []<-chan error{first, second, f.beginClose(f.patient())} {
		if err, ok := receive(f.patient().Done(), closed, 0); !ok {
			f.Errorf("Close has not returned after %v", f.harness.Patience)
		} else if err != nil {
			f.Errorf("Close: %v", err)
		}
	}
	if err := f.broker.Close(f.patient()); err != nil {
		f.Errorf("Close again: %v", err)
	}
}

// What a broker starts is over once Close has returned.
func closeLeaksNothing(t T, h Harness) {
	f := startServer(t, h)
	f.topic = f.server.Topic()
	leaked := goroutinesOf(func() {
		f.broker = f.open()
		f.deliver(f.record("leak"))
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		f.publish(ended, f.record("leak"))
		if f.server.Cut != nil {
			f.server.Cut()
			f.eventuallyDelivered("publishing after a cut", f.record("leak"))
		}
		if err := f.broker.Close(f.patient()); err != nil {
			f.Fatalf("Close: %v", err)
		}
	})
	// Goroutines that have nothing left to do may need a moment to be gone.
	f.eventually("ending the goroutines that Close left", func() error {
		if stacks := leaked(); stacks != "" {
			return errors.New(stacks)
		}
		return nil
	})
}
