package core

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

const (
	// maxSettles is how many settles run at the same time: while one waits for the disk the next is on its way.
	maxSettles = 2
	// maxSettleSize bounds the records of one settle.
	maxSettleSize = 2000
)

// settler is the state of settling: results gather while calls are under way, so that batches grow with the load and
// nothing waits without one.
type settler struct {
	pending []settling
	calls   int
	size    int // how many records the next call may take; smaller after a failure, to find what does not go through
	next    time.Time
	worked  int // how many calls have succeeded
}

type settling struct {
	entry  *entry
	status Status
	// failed is 0, or settler.worked and one when a call with it failed first.
	failed int
}

func (s *settler) idle() bool { return len(s.pending) == 0 && s.calls == 0 }

// settleLater notes the result of a record to be written down.
func (l *loop) settleLater(e *entry, status Status) {
	if !e.Gate().Dropped() {
		l.settler.pending = append(l.settler.pending, settling{entry: e, status: status})
	}
}

// settle begins to write down what is pending.
func (l *loop) settle(now time.Time) {
	for l.settler.calls < maxSettles && len(l.settler.pending) > 0 && !now.Before(l.settler.next) {
		batch := l.nextSettle()
		if len(batch) == 0 {
			return
		}
		l.settler.calls++
		req := l.settlement(now, batch)
		l.call(func(ctx context.Context) func() {
			start := time.Now()
			ctx, cancel := context.WithTimeout(ctx, l.cfg.LeaseTTL)
			defer cancel()
			got, err := l.store.Settle(ctx, req)
			took := time.Since(start)
			return func() { l.settled(batch, got, took, err) }
		})
	}
}

// nextSettle takes the next results, without those of lanes lost meanwhile.
func (l *loop) nextSettle() []settling {
	if l.settler.size == 0 {
		l.settler.size = maxSettleSize
	}
	var batch []settling
	rest := l.settler.pending
	for len(rest) > 0 && len(batch) < l.settler.size {
		if !rest[0].entry.Gate().Dropped() {
			batch = append(batch, rest[0])
		}
		rest = rest[1:]
	}
	l.settler.pending = rest
	if len(rest) == 0 {
		l.settler.pending = nil
	}
	return batch
}

// settlement is the request for the results.
func (l *loop) settlement(now time.Time, batch []settling) Settlement {
	req := Settlement{Member: l.member, Items: make([]SettleItem, len(batch))}
	leases := map[int]bool{}
	for i, s := range batch {
		r := s.entry.Value.record
		if !leases[r.Lane] {
			leases[r.Lane] = true
			req.Leases = append(req.Leases, l.lanes[r.Lane].Lease)
		}
		item := SettleItem{Record: r, Status: s.status}
		if s.status != StatusPublished {
			item.Attempts, item.Reason = s.entry.Value.attempts, s.entry.Value.reason
		}
		if s.status == StatusFailed {
			item.RetryIn = max(s.entry.Due.Sub(now), 0)
		}
		req.Items[i] = item
	}
	return req
}

// settled takes the result of a settle. One that failed may have been written all the same; it is repeated, which the
// store takes without harm.
func (l *loop) settled(batch []settling, got Settled, took time.Duration, err error) {
	now := time.Now()
	l.settler.calls--
	event := SettleEvent{Took: took, Missed: len(got.Missed), Err: err}
	for _, s := range batch {
		switch s.status {
		case StatusPublished:
			event.Published++
		case StatusFailed:
			event.Failed++
		case StatusBlocked:
			event.Blocked++
		default:
			event.Parked++
		}
	}
	defer l.observe(event)
	err = l.settler.blame(batch, err)
	if failures := l.troubles.note(opSettle, err); err != nil {
		l.settler.pending = append(l.settler.pending, batch...)
		l.settler.size = max(len(batch)/2, 1)
		l.settler.next = now.Add(l.delay(l.cfg.Outage, failures))
		return
	}
	l.settler.size = min(2*l.settler.size, maxSettleSize)
	for _, n := range got.Refused {
		if lane := l.lanes[n]; lane != nil {
			l.log.Warn("lane lost: its lease went to somebody else", "lane", n, "epoch", lane.Epoch)
			l.drop(lane)
			l.leases.next = now
		}
	}
	missed := make(map[*Record]bool, len(got.Missed))
	for _, r := range got.Missed {
		missed[r] = true
	}
	for _, s := range batch {
		l.settledOne(now, s, missed[s.entry.Value.record])
	}
}

func (l *loop) settledOne(now time.Time, s settling, missed bool) {
	if s.entry.Gate().Dropped() {
		return
	}
	result := ordering.WasDelivered
	switch s.status {
	case StatusFailed, StatusBlocked:
		result = ordering.WasCharged
	case StatusParked:
		result = ordering.WasParked
	}
	s.entry.Gate().Settled(now, s.entry, result, missed)
	if !missed && (s.status == StatusParked || s.status == StatusBlocked) {
		l.exhausted(now, s.entry, s.status)
	}
}

// blame names the event that cannot be settled, once that is sure: it failed alone, and since it failed first others went
// through.
func (s *settler) blame(batch []settling, err error) error {
	if err == nil {
		s.worked++
		return nil
	}
	for i := range batch {
		if batch[i].failed == 0 {
			batch[i].failed = s.worked + 1
		}
	}
	if len(batch) > 1 || s.worked < batch[0].failed {
		return err
	}
	r := batch[0].entry.Value.record
	return fmt.Errorf("event %q, id %d, topic %q, key %s: %w", r.EventID, r.ID, r.Topic, r.Key(), err)
}
