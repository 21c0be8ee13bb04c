package core

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// fetcher is the state of fetching: one call at a time, for all lanes.
type fetcher struct {
	busy  bool
	next  time.Time // when to poll again
	found time.Time // when records came last
	// foundNothing is set when the last fetch of all lanes returned nothing and there was nothing to wait for.
	foundNothing bool
	// lanes are those to read, as of this pass of the loop.
	lanes []laneFetch
	// failing is set while fetches fail: then nothing is urgent.
	failing bool
	began   time.Time // the last one
	// blocked is set while no fetch may begin, whatever the time: only an answer can change that.
	blocked  bool
	cancel   context.CancelFunc // ends the call under way
	sleeping context.CancelFunc // ends the Waker's sleep
}

// wake ends the sleep.
func (f *fetcher) wake() {
	if f.sleeping != nil {
		f.sleeping()
		f.sleeping = nil
	}
}

// laneFetch is one lane of a fetch under way.
type laneFetch struct {
	lane *lane
	gate *gate
}

// fetch begins a fetch if records may be there, and room is for them.
func (l *loop) fetch(now time.Time) {
	l.fetcher.blocked = l.fetcher.busy || l.stopping || !now.Before(l.leases.trusted)
	if l.fetcher.blocked {
		return
	}
	records, bytes := l.queue.Held()
	room, roomBytes := l.cfg.MaxInFlight-records, l.cfg.MaxInFlightBytes-bytes
	lanes := l.fetchable()
	l.fetcher.lanes = lanes
	l.fetcher.blocked = len(lanes) == 0 || room < max(l.cfg.FetchSize/2, 1) || records > 0 && roomBytes < l.cfg.FetchBytes/2
	if l.fetcher.blocked || now.Before(l.fetcher.next) && (l.fetcher.failing || !anyWants(now, lanes)) {
		return
	}
	req := FetchRequest{
		Member:     l.member,
		MaxRecords: min(l.cfg.FetchSize, room),
		MaxBytes:   max(min(l.cfg.FetchBytes, roomBytes), 1),
		Lanes:      make([]LaneFetch, len(lanes)),
	}
	l.beginFetch(now, lanes, req)
}

func (l *loop) beginFetch(now time.Time, lanes []laneFetch, req FetchRequest) {
	for i, f := range lanes {
		plan := f.gate.BeginFetch(now)
		req.Lanes[i] = LaneFetch{
			Lease: f.lane.Lease, RewindFrom: plan.RewindFrom, Held: plan.Held, Closed: plan.Closed, Heads: plan.Heads,
		}
	}
	l.fetcher.busy, l.fetcher.blocked, l.fetcher.began = true, true, now
	l.fetcher.wake()
	ctx, cancel := context.WithTimeout(l.work, l.cfg.LeaseTTL)
	l.fetcher.cancel = cancel
	l.call(func(context.Context) func() {
		defer cancel()
		start := time.Now()
		batch, err := l.store.Fetch(ctx, req)
		if err == nil && len(batch.Lanes) != len(req.Lanes) {
			err = fmt.Errorf("the store answered for %d lanes, asked for %d", len(batch.Lanes), len(req.Lanes))
		}
		if err != nil {
			return func() { l.fetchFailed(lanes, time.Since(start), err) }
		}
		replies := make([]ordering.Reply[job], len(batch.Lanes))
		fetched := time.Now()
		for i := range batch.Lanes {
			replies[i] = l.prepare(fetched, &batch.Lanes[i])
		}
		return func() { l.fetched(lanes, batch, replies, fetched.Sub(start)) }
	})
}

// fetchable returns the lanes to read. While the broker is paused nothing is read but the lanes of trials, and what has
// to be read before there can be one.
func (l *loop) fetchable() []laneFetch {
	out := make([]laneFetch, 0, len(l.order))
	paused := l.brokerPaused()
	for _, n := range l.order {
		lane := l.lanes[n]
		if lane.giving || !l.publish.returned(lane.after) || paused && !l.isTrial(lane) && !lane.gate.Behind(ordering.Outlet{}) {
			continue
		}
		out = append(out, laneFetch{lane, lane.gate})
	}
	return out
}

// anyWants reports whether a lane wants something fetched that is known to be there.
func anyWants(now time.Time, lanes []laneFetch) bool {
	for _, f := range lanes {
		if f.gate.Wants(now) {
			return true
		}
	}
	return false
}

// prepare makes the gate's entries of a lane's records: routed, encoded, or with the reason why that cannot be done.
func (l *loop) prepare(now time.Time, b *LaneBatch) ordering.Reply[job] {
	reply := ordering.Reply[job]{After: b.After, UpTo: b.UpTo, Rewound: b.Rewound}
	slab := make([]entry, len(b.Records)+len(b.Heads))
	for i, records := range [][]*Record{b.Records, b.Heads} {
		entries := make([]*entry, 0, len(records))
		for _, r := range records {
			e := &slab[0]
			slab = slab[1:]
			l.prepareOne(now, r, e)
			entries = append(entries, e)
		}
		if i == 0 {
			reply.Records = entries
		} else {
			reply.Heads = entries
		}
	}
	return reply
}

func (l *loop) prepareOne(now time.Time, r *Record, e *entry) {
	e.ID, e.EventID, e.Key = r.ID, r.EventID, r.Key()
	e.Bytes = r.Size()
	switch {
	case r.Delay == Forever:
		e.Blocked, e.Due = true, now.Add(blockedRecheck)
	case r.Delay > 0:
		e.Due = now.Add(r.Delay)
	}
	e.Value.record = r
	e.Value.prepared, e.Value.err = l.encode(r)
	e.Solo = e.Value.err != nil
	if e.Value.err == nil {
		e.Outlet = ordering.Outlet{Broker: e.Value.prepared.Broker, Destination: e.Value.prepared.Destination}
		e.Bytes = max(e.Bytes, e.Value.prepared.Bytes)
	}
}

// encode finds the topic and lets the broker encode the record. A panic there is the record's own failure.
func (l *loop) encode(r *Record) (p Prepared, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			l.log.Error("routing or preparing panicked", "event_id", r.EventID, "id", r.ID, "panic", reason, "stack", string(debug.Stack()))
			err = &PublishError{
				Class: ClassTransient, Scope: ScopeMessage, Code: "PANIC", Err: fmt.Errorf("routing or preparing panicked: %v", reason),
			}
		}
	}()
	if r.Topic == "" {
		topic, err := l.cfg.Route(r)
		if err == nil && topic == "" {
			err = errors.New("Config.Route returned an empty topic")
		}
		if err != nil {
			return Prepared{}, &PublishError{Class: ClassPermanent, Scope: ScopeMessage, Code: "NO_TOPIC", Err: err}
		}
		r.route(topic)
	}
	p, err = l.broker.Prepare(r)
	var known *PublishError
	if err != nil && !errors.As(err, &known) {
		err = &PublishError{Class: ClassPermanent, Scope: ScopeMessage, Code: "INVALID", Err: err}
	}
	return p, err
}

// fetchFailed takes a fetch that gave no reply.
func (l *loop) fetchFailed(lanes []laneFetch, took time.Duration, err error) {
	now := time.Now()
	l.fetcher.busy = false
	for _, f := range lanes {
		f.gate.FailFetch(now)
	}
	if l.stopping {
		return // stop has cancelled it
	}
	l.fetcher.failing = true
	failures := l.troubles.note(opFetch, err)
	l.fetcher.next = now.Add(l.delay(l.cfg.Outage, failures))
	l.observe(FetchEvent{Lanes: len(lanes), Took: took, Err: err})
}

// fetched takes the reply of a fetch.
func (l *loop) fetched(lanes []laneFetch, batch Batch, replies []ordering.Reply[job], took time.Duration) {
	now := time.Now()
	l.fetcher.busy = false
	l.fetcher.failing = false
	l.troubles.note(opFetch, nil)
	count, cut := 0, false
	var anew []int
	for i, f := range lanes {
		b := &batch.Lanes[i]
		l.tellParked(b.Parked)
		switch {
		case f.gate.Dropped():
		case b.Refused:
			l.drop(f.lane)
			l.leases.next = now
		case b.Reset:
			anew = append(anew, f.lane.Lane)
			f.gate.Drop()
			f.lane.gate, f.lane.after = l.newLane(f.lane.Lease).gate, l.publish.last
		default:
			l.place(replies[i].Records, replies[i].Heads)
			l.suspects.mark(replies[i].Records)
			l.suspects.mark(replies[i].Heads)
			f.gate.EndFetch(now, replies[i])
			l.haltForBlocked(now, replies[i].Records)
			count += len(b.Records) + len(b.Heads)
			cut = cut || b.UpTo != EverythingAbove
		}
	}
	if len(anew) > 0 {
		l.log.Warn("the store was replaced by another state of its data, reading anew", "lanes", anew)
	}
	l.fetcher.foundNothing = count == 0 && !cut && len(lanes) == len(l.lanes)
	l.pace(now, count, cut)
	l.observe(FetchEvent{Lanes: len(lanes), Records: count, Took: took})
}

// tellParked tells of what the store has parked itself.
func (l *loop) tellParked(parked []DeadLetter) {
	for _, d := range parked {
		r := d.Record
		l.log.Error("parked: no message can be made of the row", "event_id", r.EventID, "id", r.ID, "topic", r.Topic,
			"key", r.Key().String(), "reason", d.Reason)
		l.observe(ParkEvent{Record: r, Attempts: r.Attempts, Reason: d.Reason})
	}
}

// haltForBlocked halts the destinations of records that were blocked before this dispatcher came.
func (l *loop) haltForBlocked(now time.Time, entries []*entry) {
	for _, e := range entries {
		if e.Blocked {
			l.haltFor(now, e.Value.record, e.Outlet)
		}
	}
}

const (
	// maxBlindWait is the longest wait before the next poll of a store that cannot wake us.
	maxBlindWait = time.Second
	// patience is the part of the time without records, one in so many, that the next wait takes: an event that comes
	// after a silence is found within that part of the silence, and a silence of an hour costs few polls.
	patience = 8
)

// pace decides when to fetch next: at once while a backlog is there, soon while records flow, and ever later while
// nothing comes, unless the store wakes us.
func (l *loop) pace(now time.Time, count int, cut bool) {
	if count > 0 || l.fetcher.found.IsZero() {
		l.fetcher.found = now
	}
	if cut {
		l.fetcher.next = now
		return
	}
	d := min(max(now.Sub(l.fetcher.found)/patience, l.cfg.PollMin), l.cfg.PollMax)
	waker, ok := l.store.(Waker)
	if !ok {
		d = min(d, maxBlindWait)
	}
	l.fetcher.next = now.Add(d)
	if !ok || l.stopping {
		return
	}
	ctx, cancel := context.WithCancel(l.work)
	l.fetcher.sleeping = cancel
	l.fetcher.next = now.Add(d + time.Second) // the end of the sleep comes first
	l.call(func(context.Context) func() {
		waker.Sleep(ctx, d)
		woken := ctx.Err() == nil
		cancel()
		return func() {
			if woken { // a sleep that ends early for no reason must not become a hot loop
				l.fetcher.next = l.fetcher.began.Add(l.cfg.PollMin)
			}
		}
	})
}
