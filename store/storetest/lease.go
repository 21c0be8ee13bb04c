package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
)

func leaseCases() []Case {
	return []Case{
		rule("Lease/LanesAreAsDeclared", leaseLanesAreAsDeclared),
		rule("Lease/TwoMembersNeverHoldALane", leaseTwoMembers),
		rule("Lease/ARaceHasOneWinner", leaseRace),
		rule("Lease/ExpiredIsTakenWithHigherEpoch", leaseExpiredIsTaken),
		rule("Lease/ExpiresByTheStoresClock", leaseExpiresByItself),
		rule("Lease/ExpiredButNotTakenIsExtendedUnderItsEpoch", leaseExpiredNotTaken),
		rule("Lease/ReleasedIsFreeAtOnce", leaseReleased),
		rule("Lease/AnOldReleaseIsIgnored", leaseOldRelease),
		rule("Lease/LeaveForgetsTheMember", leaseLeave),
		rule("Lease/ExtendsUnderTheSameEpoch", leaseExtends),
		rule("Lease/MembersAreTheLiveOnes", leaseMembers),
		rule("Lease/NextExpiryIsSomebodyElses", leaseNextExpiry),
	}
}

// member is a replica without lanes.
func (f *fixture) member(name string) *replica {
	return &replica{fixture: f, store: f.store, member: name}
}

func (r *replica) want(ttl time.Duration, lanes ...int) []core.Lease {
	r.Helper()
	return r.lease(core.LeaseRequest{TTL: ttl, Want: lanes}).Held
}

func leaseLanesAreAsDeclared(f *fixture) {
	reply := f.member("m").lease(core.LeaseRequest{TTL: longTTL})
	if reply.Lanes != f.h.Lanes {
		f.Errorf("the store has %d lanes, the harness says %d", reply.Lanes, f.h.Lanes)
	}
	if len(reply.Held) > 0 {
		f.Errorf("a member that wanted nothing holds %v", reply.Held)
	}
}

// Two owners of a lane publish the same key at the same time.
func leaseTwoMembers(f *fixture) {
	first := f.join("first")
	second := f.member("second")
	for range 2 {
		if got := second.want(longTTL, allLanes(f.h.Lanes)...); len(got) > 0 {
			f.Fatalf("lanes that another member holds were taken: %v", got)
		}
	}
	equal(f, first.want(longTTL), first.leases, "what the first one still holds")
}

func leaseRace(f *fixture) {
	const members = 8
	stores := []core.Store{f.store, f.tables.Store(f.TB)}
	replies, errs := make([]core.Leases, members), make([]error, members)
	ctx := f.within()
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() {
			req := core.LeaseRequest{Member: fmt.Sprint("m", i), TTL: longTTL, Want: allLanes(f.h.Lanes)}
			replies[i], errs[i] = stores[i%2].Lease(ctx, req)
		})
	}
	all.Wait()
	owners := make([]int, f.h.Lanes)
	for i, reply := range replies {
		if errs[i] != nil {
			f.Fatalf("lease: %v", errs[i])
		}
		for _, lease := range reply.Held {
			owners[lease.Lane]++
		}
	}
	for lane, n := range owners {
		if n != 1 {
			f.Errorf("lane %d has %d owners after %d members wanted it at the same time", lane, n, members)
		}
	}
}

// The epoch is what a write of the old owner is refused by.
func leaseExpiredIsTaken(f *fixture) {
	silent := f.joinOn(f.store, "silent", f.ttl())
	f.expire("silent")
	heir := f.join("heir")
	equal(f, heir.leases, raised(silent.leases), "leases of the heir: each epoch one higher")
	if got := silent.want(longTTL, allLanes(f.h.Lanes)...); len(got) > 0 {
		f.Errorf("the overtaken member still holds %v", got)
	}
}

func raised(leases []core.Lease) []core.Lease {
	next := slices.Clone(leases)
	for i := range next {
		next[i].Epoch++
	}
	return next
}

// Nobody says that it is over but the clock of the store.
func leaseExpiresByItself(f *fixture) {
	ttl := 300 * time.Millisecond
	silent := f.joinOn(f.store, "silent", ttl)
	heir := f.member("heir")
	for deadline := time.Now().Add(ttl + f.h.Patience); len(heir.leases) < f.h.Lanes; {
		if time.Now().After(deadline) {
			f.Fatalf("a lease of %v is still not free", ttl)
		}
		reply := heir.lease(core.LeaseRequest{TTL: longTTL, Want: allLanes(f.h.Lanes)})
		heir.leases = reply.Held
		if len(heir.leases) < f.h.Lanes {
			f.pause(min(max(reply.NextExpiry, time.Millisecond), ttl))
		}
	}
	equal(f, heir.leases, raised(silent.leases), "leases of the heir: each epoch one higher")
}

// A pause that harmed nobody costs nothing: what is in flight stays valid.
func leaseExpiredNotTaken(f *fixture) {
	r := f.joinOn(f.store, "m", f.ttl())
	f.expire("m")
	equal(f, r.want(longTTL, allLanes(f.h.Lanes)...), r.leases, "the owner's own expired leases")
	if got := f.member("other").want(longTTL, allLanes(f.h.Lanes)...); len(got) > 0 {
		f.Errorf("another member took leases that were extended: %v", got)
	}
}

func leaseReleased(f *fixture) {
	first := f.join("first")
	reply := first.lease(core.LeaseRequest{TTL: longTTL, Release: first.leases[:1]})
	equal(f, reply.Held, first.leases[1:], "left after one lane was given back")
	second := f.member("second")
	got := second.want(longTTL, allLanes(f.h.Lanes)...)
	equal(f, got, raised(first.leases[:1]), "taken by the second member")
}

func leaseOldRelease(f *fixture) {
	r := f.join("m")
	old := r.leases
	r.release()
	r.take(longTTL)
	reply := r.lease(core.LeaseRequest{TTL: longTTL, Release: old})
	equal(f, reply.Held, r.leases, "held after a release of leases that were over")
	other := f.member("other").lease(core.LeaseRequest{TTL: longTTL, Release: r.leases})
	equal(f, other.Held, nil, "held by another member")
	equal(f, r.want(longTTL), r.leases, "held after another member released them")
}

func leaseLeave(f *fixture) {
	first := f.join("first")
	second := f.member("second")
	second.want(longTTL)
	reply := first.lease(core.LeaseRequest{Leave: true, TTL: longTTL, Want: allLanes(f.h.Lanes)})
	equal(f, reply.Held, nil, "held after leaving")
	equal(f, reply.Members, []string{"second"}, "members after the first one left")
	equal(f, second.want(longTTL, allLanes(f.h.Lanes)...), raised(first.leases), "taken by the second member")
	first.lease(core.LeaseRequest{Leave: true}) // again is no error
}

func leaseExtends(f *fixture) {
	r := f.join("m")
	for range 3 {
		equal(f, r.want(longTTL), r.leases, "held after an extension")
		equal(f, r.want(longTTL, allLanes(f.h.Lanes)...), r.leases, "held after its own lanes were wanted again")
	}
}

// Replicas share the lanes between the members they see; one that stays listed keeps lanes without an owner.
func leaseMembers(f *fixture) {
	first, second, third := f.member("first"), f.member("second"), f.member("third")
	first.want(longTTL)
	second.want(f.ttl())
	reply := third.lease(core.LeaseRequest{TTL: longTTL})
	equal(f, slices.Sorted(slices.Values(reply.Members)), []string{"first", "second", "third"}, "members")
	f.expire("second")
	reply = third.lease(core.LeaseRequest{TTL: longTTL})
	equal(f, slices.Sorted(slices.Values(reply.Members)), []string{"first", "third"}, "members after one was silent")
	second.want(longTTL)
	reply = third.lease(core.LeaseRequest{TTL: longTTL})
	equal(f, slices.Sorted(slices.Values(reply.Members)), []string{"first", "second", "third"}, "members after it came back")
}

func leaseNextExpiry(f *fixture) {
	alone := f.member("first").lease(core.LeaseRequest{TTL: time.Minute, Want: allLanes(f.h.Lanes)})
	if alone.NextExpiry != 0 {
		f.Errorf("NextExpiry is %v with nobody else there", alone.NextExpiry)
	}
	reply := f.member("second").lease(core.LeaseRequest{TTL: longTTL})
	if reply.NextExpiry < 0 || reply.NextExpiry > time.Minute {
		f.Errorf("NextExpiry is %v, but the other member's lease of a minute expires first", reply.NextExpiry)
	}
}
