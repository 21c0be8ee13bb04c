package sqlite

import (
	"context"
	"sync"
	"time"
)

// maxPause bounds the pause after a transaction in which the process itself was stopped for long.
const maxPause = 100 * time.Millisecond

// pace keeps the store from holding the write lock more than half of the time. Other processes poll for that lock, at
// growing intervals: a dispatcher that took it again at once would starve them, until their busy timeout ends in
// SQLITE_BUSY. The zero value is ready.
type pace struct {
	mu   sync.Mutex
	next time.Time // when the next transaction may begin
}

// wait blocks until the lock may be asked for, or ctx ends.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	pause := time.Until(p.next)
	p.mu.Unlock()
	if pause <= 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// held notes for how long the lock was held until now.
func (p *pace) held(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Now().Add(min(d, maxPause))
}
