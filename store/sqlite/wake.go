package sqlite

import (
	"context"
	"sync"
	"time"
)

// alarm wakes all sleepers of a process at once. The zero value is ready.
type alarm struct {
	mu   sync.Mutex
	ring chan struct{} // closed while it rings; nil until somebody listens
	rung bool
}

// sound wakes who sleeps, and who goes to sleep before somebody calls reset.
func (a *alarm) sound() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rung {
		return
	}
	a.rung = true
	if a.ring != nil {
		close(a.ring)
	}
}

// reset makes the alarm silent: what it was sounded for will be seen.
func (a *alarm) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rung {
		a.rung, a.ring = false, nil
	}
}

// listen returns a channel that is closed when the alarm sounds.
func (a *alarm) listen() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ring == nil {
		a.ring = make(chan struct{})
		if a.rung {
			close(a.ring)
		}
	}
	return a.ring
}

// watchEvery is how often a sleeper looks for commits of other processes: a look takes some microseconds.
const watchEvery = 5 * time.Millisecond

// Nudge tells dispatchers in this process at once that something was committed. Call it after the commit of a
// transaction in which messages were enqueued; [Store].InTx does. It never blocks.
func (s *Store) Nudge() { s.alarm.sound() }

// Sleep is described at [core.Waker]. It ends on [Store].Nudge, and a few milliseconds after any other commit to the
// file; with a pool given to [New], only on Nudge.
func (s *Store) Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.alarm.listen():
			// A dispatcher that stands by does not fetch, and would spin if the alarm went on.
			s.alarm.reset()
			return
		case <-ticker.C:
			if s.watch.changed(ctx) {
				s.alarm.sound() // for all who sleep on this store
			}
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
