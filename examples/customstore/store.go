// Package customstore is a complete [core.Store] in two files: the place to begin when you write your own.
//
// It keeps its tables in memory and has one lane, and no option at all. What a real store has more: a database instead
// of a mutex, several lanes, and ids that are drawn before the commit, so that a commit can come late. Package
// store/memstore shows all of it.
package customstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var (
	_ core.Store    = (*Store)(nil)
	_ core.Enqueuer = (*Tx)(nil)
)

// Tables is what a database keeps. Any number of Stores share it. The zero value is empty tables.
type Tables struct {
	mu     sync.Mutex
	lastID int64
	rows   []*row // by id; published rows are gone

	members map[string]time.Time // until when each is alive
	lease   struct {
		owner string
		epoch int64
		until time.Time
	}
	rewound []int64 // to be told to the owner of the lane
}

// row is an event that is not published yet, or parked.
type row struct {
	record  core.Record // Delay is not used: see due and blocked
	due     time.Time
	blocked bool // due never, until a person acts
	parked  bool
	reason  string
}

// Store is a handle on the tables, with the memory of one process: what it returned under which lease.
type Store struct {
	tables   *Tables
	closed   bool
	epoch    int64
	position int64 // everything up to here was returned, was held, or belongs to a closed key
}

// Open returns a Store of the tables.
func Open(tables *Tables) *Store { return &Store{tables: tables} }

// Close implements [core.Store].
func (s *Store) Close() error {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	s.closed = true
	return nil
}

// enter locks the tables for one call. All that can go wrong here is that the caller has gone, or the Store is closed.
func (s *Store) enter(ctx context.Context) (leave func(), err error) {
	s.tables.mu.Lock()
	if err = ctx.Err(); err == nil && s.closed {
		err = fmt.Errorf("customstore: %w", core.ErrClosed)
	}
	if err != nil {
		s.tables.mu.Unlock()
		return nil, err
	}
	return s.tables.mu.Unlock, nil
}

// Lease implements [core.Store]. The clock is the store's own: requests hold durations only.
func (s *Store) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return core.Leases{}, err
	}
	defer leave()
	t, now := s.tables, time.Now()
	lease := &t.lease
	release := req.Leave || slices.Contains(req.Release, core.Lease{Epoch: lease.epoch})
	if release && lease.owner == req.Member {
		lease.owner = ""
	}
	if t.members == nil {
		t.members = map[string]time.Time{}
	}
	t.members[req.Member] = now.Add(req.TTL)
	if req.Leave {
		delete(t.members, req.Member)
	} else if free := lease.owner == "" || !now.Before(lease.until); free &&
		lease.owner != req.Member && slices.Contains(req.Want, 0) {
		lease.owner = req.Member
		lease.epoch++ // whoever held it before is fenced off from now on
	}
	if lease.owner == req.Member {
		lease.until = now.Add(req.TTL)
	}
	return t.leases(req.Member, now), nil
}

func (t *Tables) leases(member string, now time.Time) core.Leases {
	reply := core.Leases{Lanes: 1}
	maps.DeleteFunc(t.members, func(_ string, until time.Time) bool { return !now.Before(until) })
	reply.Members = slices.Sorted(maps.Keys(t.members))
	if t.lease.owner == member && member != "" {
		reply.Held = []core.Lease{{Epoch: t.lease.epoch}}
	}
	for other, until := range t.members {
		if wait := until.Sub(now); other != member && (reply.NextExpiry == 0 || wait < reply.NextExpiry) {
			reply.NextExpiry = wait
		}
	}
	return reply
}

// holds is the fence. A lease that has expired still counts as long as nobody took it.
func (t *Tables) holds(member string, lease core.Lease) bool {
	return lease.Lane == 0 && t.lease.owner == member && t.lease.epoch == lease.Epoch
}

// Fetch implements [core.Store].
func (s *Store) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return core.Batch{}, err
	}
	defer leave()
	batch := core.Batch{Lanes: make([]core.LaneBatch, len(req.Lanes))}
	for i := range req.Lanes {
		batch.Lanes[i] = s.fetch(req, &req.Lanes[i])
	}
	return batch, nil
}

func (s *Store) fetch(req core.FetchRequest, lane *core.LaneFetch) core.LaneBatch {
	t, now := s.tables, time.Now()
	if !t.holds(req.Member, lane.Lease) {
		return core.LaneBatch{Refused: true}
	}
	if s.epoch != lane.Epoch {
		s.epoch, s.position = lane.Epoch, 0 // what was remembered belongs to another lease
	}
	if lane.RewindFrom > 0 {
		s.position = min(s.position, lane.RewindFrom-1)
	}
	reply := core.LaneBatch{After: s.position, UpTo: core.EverythingAbove, Rewound: t.rewound}
	t.rewound = nil

	// A closed key whose head is not read again would only fill the reply.
	skip := map[ordering.Key]bool{}
	for _, key := range lane.Closed {
		skip[key.Key] = key.Head <= reply.After
	}
	bytes := 0
	for _, r := range t.rows {
		if slices.Contains(lane.Heads, core.RecordRef{ID: r.record.ID, EventID: r.record.EventID}) && !r.parked {
			reply.Heads = append(reply.Heads, r.copy(now))
		}
		_, held := slices.BinarySearch(lane.Held, r.record.ID)
		if r.parked || held || r.record.ID <= reply.After || skip[r.record.Key()] || reply.UpTo != core.EverythingAbove {
			continue
		}
		bytes += r.record.Size()
		if n := len(reply.Records); n > 0 && (n == req.MaxRecords || bytes > req.MaxBytes) {
			reply.UpTo = r.record.ID - 1
			continue
		}
		reply.Records = append(reply.Records, r.copy(now))
	}
	s.position = min(reply.UpTo, t.lastID)
	return reply
}

// copy is what the dispatcher gets: it owns it.
func (r *row) copy(now time.Time) *core.Record {
	record := r.record
	record.Payload = slices.Clone(r.record.Payload)
	record.Headers = maps.Clone(r.record.Headers)
	record.Delay = r.due.Sub(now)
	if r.blocked {
		record.Delay = core.Forever
	}
	return &record
}

// Settle implements [core.Store].
func (s *Store) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return core.Settled{}, err
	}
	defer leave()
	var reply core.Settled
	for _, lease := range req.Leases {
		if !s.tables.holds(req.Member, lease) {
			reply.Refused = append(reply.Refused, lease.Lane)
		}
	}
	if len(reply.Refused) > 0 { // there is one lane only, so all items are of it
		return reply, nil
	}
	for _, item := range req.Items {
		r := s.tables.unsettled(item.Record)
		switch {
		case r == nil:
			reply.Missed = append(reply.Missed, item.Record)
		case item.Status == core.StatusPublished:
			s.tables.remove(r)
		default:
			r.fail(item, time.Now())
		}
	}
	return reply, nil
}

func (r *row) fail(item core.SettleItem, now time.Time) {
	r.record.Attempts, r.reason = item.Attempts, item.Reason
	if r.record.FirstFailedAt.IsZero() {
		r.record.FirstFailedAt = now
	}
	r.due = now.Add(item.RetryIn)
	r.blocked, r.parked = item.Status == core.StatusBlocked, item.Status == core.StatusParked
}

// unsettled finds the row of a record, by all that names it: an event may have been sent again since.
func (t *Tables) unsettled(record *core.Record) *row {
	for _, r := range t.rows {
		if r.record.ID == record.ID && r.record.EventID == record.EventID && r.record.Replay == record.Replay && !r.parked {
			return r
		}
	}
	return nil
}

func (t *Tables) remove(gone *row) {
	t.rows = slices.DeleteFunc(t.rows, func(r *row) bool { return r == gone })
}
