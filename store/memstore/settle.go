package memstore

import (
	"context"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Settle implements [core.Store].
func (s *Store) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	var reply core.Settled
	err := s.call(ctx, Point{Op: OpSettle, Member: req.Member}, func() error {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		reply = s.table.settleAll(req, s.cfg.AfterPublish, time.Now())
		return nil
	})
	if err != nil {
		return core.Settled{}, err
	}
	return reply, nil
}

func (t *table) settleAll(req core.Settlement, after AfterPublish, now time.Time) core.Settled {
	var reply core.Settled
	ours := make(map[int]bool, len(req.Leases))
	for _, l := range req.Leases {
		ours[l.Lane] = t.holds(req.Member, l)
		if !ours[l.Lane] {
			reply.Refused = append(reply.Refused, l.Lane)
		}
	}
	for i := range req.Items {
		item := &req.Items[i]
		if !ours[item.Record.Lane] {
			continue
		}
		r := t.settleable(item.Record)
		if r == nil {
			reply.Missed = append(reply.Missed, item.Record)
			continue
		}
		t.apply(r, item, after, now)
	}
	return reply
}

// settleable finds the row that a record is about: an id may have been drawn again since, and an event sent again.
func (t *table) settleable(record *core.Record) *row {
	r := t.unsettled(record.ID, record.EventID)
	if r == nil || r.replay != record.Replay || record.Origin != t.origin {
		return nil
	}
	return r
}

func (t *table) apply(r *row, item *core.SettleItem, after AfterPublish, now time.Time) {
	if item.Status == core.StatusPublished {
		if after == Delete {
			t.forget(r)
		} else {
			t.settle(r, Published, now)
		}
		return
	}
	r.attempts, r.reason = item.Attempts, item.Reason
	if r.firstFailed.IsZero() {
		r.firstFailed = now
	}
	switch item.Status {
	case core.StatusParked:
		t.settle(r, Parked, now)
	case core.StatusBlocked:
		r.blocked, r.due, r.since = true, now, now
	default:
		r.blocked, r.due = false, now.Add(item.RetryIn)
	}
}
