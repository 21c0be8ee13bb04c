package storetest

import (
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

// replica is a dispatcher as small as it gets: what it holds, and calls that check what comes back.
type replica struct {
	*fixture
	store  core.Store
	member string
	leases []core.Lease
	held   []int64 // sent in every fetch
}

// join takes all lanes for a new member.
func (f *fixture) join(member string) *replica {
	f.Helper()
	return f.joinOn(f.store, member, longTTL)
}

func (f *fixture) joinOn(store core.Store, member string, ttl time.Duration) *replica {
	f.Helper()
	r := &replica{fixture: f, store: store, member: member}
	r.take(ttl)
	return r
}

// take takes all lanes, which must be free.
func (r *replica) take(ttl time.Duration) {
	r.Helper()
	r.leases = r.lease(core.LeaseRequest{TTL: ttl, Want: allLanes(r.h.Lanes)}).Held
	if len(r.leases) != r.h.Lanes {
		r.Fatalf("%s wanted all %d lanes, which are free, and got %v", r.member, r.h.Lanes, r.leases)
	}
}

// release gives all lanes back.
func (r *replica) release() {
	r.Helper()
	r.lease(core.LeaseRequest{TTL: longTTL, Release: r.leases})
}

// leave ends the membership.
func (r *replica) leave() {
	r.Helper()
	r.lease(core.LeaseRequest{Leave: true})
}

func (r *replica) lease(req core.LeaseRequest) core.Leases {
	r.Helper()
	req.Member = r.member
	reply, err := r.store.Lease(r.within(), req)
	if err != nil {
		r.Fatalf("lease of %s: %v", r.member, err)
	}
	return reply
}

func allLanes(lanes int) []int {
	all := make([]int, lanes)
	for i := range all {
		all[i] = i
	}
	return all
}

// request asks for everything in all lanes, as far as it is not held.
func (r *replica) request() core.FetchRequest {
	req := core.FetchRequest{Member: r.member, MaxRecords: 10_000, MaxBytes: 1 << 30}
	for _, lease := range r.leases {
		req.Lanes = append(req.Lanes, core.LaneFetch{Lease: lease, Held: slices.Clone(r.held)})
	}
	return req
}

// rewind sets RewindFrom in all lanes.
func rewind(req core.FetchRequest, from int64) core.FetchRequest {
	for i := range req.Lanes {
		req.Lanes[i].RewindFrom = from
	}
	return req
}

// closeKey closes a key in the lane it belongs to.
func closeKey(req core.FetchRequest, head *core.Record) core.FetchRequest {
	for i := range req.Lanes {
		if q := &req.Lanes[i]; q.Lane == head.Lane {
			q.Closed = append(q.Closed, core.ClosedKey{Key: head.Key(), Head: head.ID})
		}
	}
	return req
}

// askHead asks for a record by its primary key.
func askHead(req core.FetchRequest, lane int, ref core.RecordRef) core.FetchRequest {
	for i := range req.Lanes {
		if q := &req.Lanes[i]; q.Lane == lane {
			q.Heads = append(q.Heads, ref)
		}
	}
	return req
}

// fetch sends a request and checks what holds for every reply.
func (r *replica) fetch(req core.FetchRequest) core.Batch {
	r.Helper()
	batch, err := r.store.Fetch(r.within(), req)
	if err != nil {
		r.Fatalf("fetch of %s: %v", r.member, err)
	}
	for _, fault := range replyFaults(req, batch) {
		r.Errorf("%s", fault)
	}
	if r.Failed() {
		r.FailNow()
	}
	return batch
}

// fetchAll fetches everything that is there, without holding it.
func (r *replica) fetchAll() []*core.Record {
	r.Helper()
	return records(r.fetch(r.request()))
}

// again fetches everything that is unsettled, whatever was fetched before.
func (r *replica) again() []*core.Record {
	r.Helper()
	return records(r.fetch(rewind(r.request(), 1)))
}

// await fetches until all these events have come, holding what came, and returns all that came, in that order. Most
// stores answer at once; one that follows a stream may be a little behind.
func (r *replica) await(want ...string) []*core.Record {
	r.Helper()
	var got []*core.Record
	var missing []string
	for deadline := time.Now().Add(r.h.Patience); ; r.pause(5 * time.Millisecond) {
		for _, record := range r.fetchAll() {
			got = append(got, record)
			r.hold(record)
		}
		missing = slices.DeleteFunc(slices.Clone(want), func(id string) bool { return byEvent(got, id) != nil })
		if len(missing) == 0 {
			return got
		}
		if time.Now().After(deadline) {
			r.Fatalf("these events never came: %v; what came is %v", missing, eventsOf(got))
		}
	}
}

func (r *replica) hold(record *core.Record) {
	i, _ := slices.BinarySearch(r.held, record.ID)
	r.held = slices.Insert(r.held, i, record.ID)
}

// letGo stops holding everything.
func (r *replica) letGo() { r.held = nil }

// settle sends items under the replica's leases.
func (r *replica) settle(items ...core.SettleItem) core.Settled {
	r.Helper()
	return r.settleUnder(r.leases, items...)
}

func (r *replica) settleUnder(leases []core.Lease, items ...core.SettleItem) core.Settled {
	r.Helper()
	req := core.Settlement{Member: r.member, Items: items}
	for _, lease := range leases {
		if slices.ContainsFunc(items, func(i core.SettleItem) bool { return i.Record.Lane == lease.Lane }) {
			req.Leases = append(req.Leases, lease)
		}
	}
	reply, err := r.store.Settle(r.within(), req)
	if err != nil {
		r.Fatalf("settle of %s: %v", r.member, err)
	}
	return reply
}

// mustSettle wants every item to be written.
func (r *replica) mustSettle(items ...core.SettleItem) {
	r.Helper()
	reply := r.settle(items...)
	if len(reply.Refused) > 0 || len(reply.Missed) > 0 {
		r.Fatalf("a settle under good leases: refused lanes %v, missed %v", reply.Refused, eventsOf(reply.Missed))
	}
}

func published(record *core.Record) core.SettleItem {
	return core.SettleItem{Record: record, Status: core.StatusPublished}
}

func failed(record *core.Record, attempts int, retryIn time.Duration) core.SettleItem {
	return core.SettleItem{
		Record: record, Status: core.StatusFailed, Attempts: attempts, RetryIn: retryIn, Reason: "broker said no",
	}
}

func parked(record *core.Record, attempts int) core.SettleItem {
	return core.SettleItem{Record: record, Status: core.StatusParked, Attempts: attempts, Reason: "too large"}
}

func blocked(record *core.Record, attempts int) core.SettleItem {
	return core.SettleItem{Record: record, Status: core.StatusBlocked, Attempts: attempts, Reason: "rejected"}
}
