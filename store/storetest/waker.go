package storetest

import (
	"context"
	"time"

	"github.com/go-outbox/outbox/core"
)

func wakerCases() []Case {
	return []Case{
		rule("Waker/IsAsDeclared", wakerIsAsDeclared),
		rule("Waker/SleepEndsWithItsContext", wakerEndsWithContext),
		rule("Waker/SleepEndsAfterItsTime", wakerEndsAfterItsTime),
		rule("Waker/CommitsEndASleep", wakerEndsOnCommit),
	}
}

// Checks Harness.Waker.
func wakerIsAsDeclared(f *fixture) {
	if _, is := f.store.(core.Waker); is != f.h.Waker {
		f.Errorf("the store is a core.Waker: %t, the harness says %t", is, f.h.Waker)
	}
}

// waker is the store as a Waker, after a fetch; the case is skipped when it is none.
func (f *fixture) waker() core.Waker {
	f.Helper()
	waker, is := f.store.(core.Waker)
	if !is {
		f.Skipf("the store is no core.Waker")
	}
	f.join("m").fetchAll()
	return waker
}

// sleeping starts a sleep, and returns a channel that is closed when it has ended.
func (f *fixture) sleeping(ctx context.Context, waker core.Waker, d time.Duration) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		waker.Sleep(ctx, d)
	}()
	f.Cleanup(func() { <-ended })
	return ended
}

func (f *fixture) wantEnd(ended <-chan struct{}, why string) {
	f.Helper()
	select {
	case <-ended:
	case <-f.within().Done():
		f.Fatalf("the sleep did not end within %v although %s", f.h.Patience, why)
	}
}

func wakerEndsWithContext(f *fixture) {
	waker := f.waker()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	ended := f.sleeping(ctx, waker, time.Hour)
	cancel()
	f.wantEnd(ended, "its context has ended")
}

// The poll is the truth: a store that sleeps on when no wake-up comes stops the dispatcher.
func wakerEndsAfterItsTime(f *fixture) {
	f.wantEnd(f.sleeping(f.Context(), f.waker(), 10*time.Millisecond), "its 10 ms have passed")
}

// One wake-up may get lost, but not all.
func wakerEndsOnCommit(f *fixture) {
	ended := f.sleeping(f.Context(), f.waker(), time.Hour)
	deadline := f.within()
	for n := 1; ; n++ {
		f.enqueue(event("a", n))
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-ended:
			timer.Stop()
			return
		case <-timer.C:
		case <-deadline.Done():
			f.Fatalf("no commit within %v ended the sleep", f.h.Patience)
		}
	}
}
