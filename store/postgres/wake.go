package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// How dispatchers sleep. The poll after each sleep is the truth; the rest only makes it come in time.
const (
	// longestListening is the longest sleep while a live connection listens, longestDeaf without one.
	longestListening = 5 * time.Second
	longestDeaf      = time.Second
	// drowsy is the length of a sleep from which on it is worth a statement to be woken up.
	drowsy = 100 * time.Millisecond
	// grace is how long sleeps stay short after inserts were asked to notify: transactions that inserted before that
	// commit without a word.
	grace      = 300 * time.Millisecond
	graceSleep = 50 * time.Millisecond
	// flagLife is how long inserts notify for a sleeper that is gone; flagRenewal is when it is asked for again.
	flagLife    = 30 * time.Second
	flagRenewal = 15 * time.Second
	// flagTimeout bounds the statements about the flag.
	flagTimeout = 2 * time.Second
)

// waker ends the sleep of dispatchers: by nudges of this process, and by notifications while a connection listens.
type waker struct {
	store   *Store
	sleeper string        // names this store among those that want to be notified
	longest time.Duration // of a sleep while somebody listens
	live    atomic.Bool   // somebody listens

	pingEvery, pingTimeout time.Duration

	mu      sync.Mutex
	ring    chan struct{} // closed by the next nudge; nil until somebody listens
	rung    bool          // something was committed since the last fetch began
	started bool          // the listener runs
	flagged time.Time     // when inserts were asked to notify, zero when they are not
	since   time.Time     // when they were asked first in this sleep
	done    sync.WaitGroup
}

func newWaker(s *Store) *waker {
	return &waker{
		store: s, sleeper: core.NewEventID(), longest: longestListening,
		pingEvery: defaultPingEvery, pingTimeout: defaultPingTimeout,
	}
}

// wait returns when the listener has ended.
func (w *waker) wait() { w.done.Wait() }

// nudge wakes who sleeps, and who goes to sleep before the next fetch.
func (w *waker) nudge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rung = true
	if w.ring != nil {
		close(w.ring)
		w.ring = nil
	}
}

// fetching says that a fetch begins, which will see all that was nudged for.
func (w *waker) fetching() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rung = false
}

// bell returns a channel that is closed at the next nudge, or nil when there was one already.
func (w *waker) bell() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rung { // used up, as a dispatcher that stands by does not fetch and would spin
		w.rung = false
		return nil
	}
	if w.ring == nil {
		w.ring = make(chan struct{})
	}
	return w.ring
}

// Nudge tells dispatchers in this process that something was committed. Call it after the commit of a transaction in
// which messages were enqueued; [Store.InTx] does. It never blocks, and without it dispatchers find out a little later.
func (s *Store) Nudge() { s.waker.nudge() }

// Sleep is described at [core.Waker]. It ends on [Store.Nudge], and, while it could last long, on commits of other
// processes too, which are then asked to notify.
func (s *Store) Sleep(ctx context.Context, d time.Duration) {
	w := s.waker
	bell := w.bell()
	if bell == nil {
		return
	}
	if d >= drowsy {
		d = min(d, w.prepare(ctx))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-bell:
	case <-timer.C:
	case <-s.closing.Done():
	case <-ctx.Done():
	}
}

// prepare asks inserts to notify, and returns how long to sleep at most.
func (w *waker) prepare(ctx context.Context) time.Duration {
	w.listen()
	if !w.live.Load() {
		return longestDeaf
	}
	now := time.Now()
	w.mu.Lock()
	due := now.Sub(w.flagged) >= flagRenewal
	w.mu.Unlock()
	if due && !w.flag(ctx, now) {
		return longestDeaf
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.since) < grace {
		return graceSleep
	}
	return w.longest
}

// flag writes the row that makes inserts notify.
func (w *waker) flag(ctx context.Context, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, flagTimeout)
	defer cancel()
	if err := w.store.transact(ctx, step{sql: w.store.queries.sleep, args: []any{w.sleeper, flagLife}}); err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.flagged.IsZero() {
		w.since = now
	}
	w.flagged = now
	return true
}

// notified wakes the sleepers and stops the notifications: nobody needs more of them while rows flow.
func (w *waker) notified(ctx context.Context, conn *pgx.Conn) error {
	w.nudge()
	w.mu.Lock()
	w.flagged = time.Time{}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flagTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, w.store.queries.wakeUp, w.sleeper)
	return err
}
