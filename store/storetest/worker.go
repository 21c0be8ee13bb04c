package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// worker is a dispatcher without any speed, but correct: it shares lanes, holds what it has published until that is
// settled, keeps a key behind its failed record, and rewinds what it drops. Its steps come in any order.
type worker struct {
	store  core.Store
	ledger *ledger
	rng    *rand.Rand
	name   string
	lives  int // a crash starts another one, under another member name

	lanes   map[int]*workerLane
	results []core.SettleItem // to be settled

	published int
}

// workerLane is a lane it owns.
type workerLane struct {
	lease   core.Lease
	held    map[int64]bool
	rewind  int64                   // 0: none
	blocked map[ordering.Key]string // key -> event id whose failure or park is not settled yet
}

func newWorker(store core.Store, l *ledger, name string, seed uint64) *worker {
	w := &worker{store: store, ledger: l, rng: rand.New(rand.NewPCG(seed, 1)), name: name} //nolint:gosec // a repeatable test
	w.crash()
	return w
}

func (w *worker) member() string { return fmt.Sprint(w.name, "-", w.lives) }

// crash forgets everything and returns the member that is no more.
func (w *worker) crash() string {
	dead := w.member()
	w.lives++
	w.lanes, w.results = map[int]*workerLane{}, nil
	return dead
}

// step does one of the three calls.
func (w *worker) step(ctx context.Context) error {
	switch w.rng.IntN(4) {
	case 0:
		return w.share(ctx)
	case 1:
		return w.settle(ctx)
	default:
		return w.fetch(ctx)
	}
}

// share takes the lanes that are due to this member and gives the others back, as far as nothing of them is held.
func (w *worker) share(ctx context.Context) error {
	req := core.LeaseRequest{Member: w.member(), TTL: longTTL}
	reply, err := w.store.Lease(ctx, req)
	if err != nil {
		return err
	}
	w.own(reply.Held)
	for lane, owner := range ordering.Assign(reply.Lanes, reply.Members) {
		mine := w.lanes[lane]
		switch {
		case owner == w.member() && mine == nil:
			req.Want = append(req.Want, lane)
		case owner != w.member() && mine != nil && len(mine.held) == 0:
			req.Release = append(req.Release, mine.lease)
		}
	}
	if reply, err = w.store.Lease(ctx, req); err != nil {
		return err
	}
	w.own(reply.Held)
	return nil
}

func (w *worker) own(leases []core.Lease) {
	before := w.lanes
	w.lanes = map[int]*workerLane{}
	for _, lease := range leases {
		if known := before[lease.Lane]; known != nil && known.lease == lease {
			w.lanes[lease.Lane] = known
		} else {
			w.lanes[lease.Lane] = newWorkerLane(lease)
		}
	}
	for lane, known := range before {
		if w.lanes[lane] != known {
			w.dropResults(lane)
		}
	}
}

func newWorkerLane(lease core.Lease) *workerLane {
	return &workerLane{lease: lease, held: map[int64]bool{}, blocked: map[ordering.Key]string{}}
}

// lose forgets a lane.
func (w *worker) lose(lane int) {
	delete(w.lanes, lane)
	w.dropResults(lane)
}

func (w *worker) dropResults(lane int) {
	w.results = slices.DeleteFunc(w.results, func(i core.SettleItem) bool { return i.Record.Lane == lane })
}

func (l *workerLane) rewindTo(id int64) {
	if l.rewind == 0 || id < l.rewind {
		l.rewind = id
	}
}

func (w *worker) fetch(ctx context.Context) error {
	req := core.FetchRequest{Member: w.member(), MaxRecords: 1 + w.rng.IntN(20), MaxBytes: 1 << 20}
	for _, lane := range slices.Sorted(maps.Keys(w.lanes)) {
		l := w.lanes[lane]
		req.Lanes = append(req.Lanes, core.LaneFetch{
			Lease: l.lease, RewindFrom: l.rewind, Held: slices.Sorted(maps.Keys(l.held)),
		})
	}
	if len(req.Lanes) == 0 {
		return nil
	}
	batch, err := w.store.Fetch(ctx, req)
	if err != nil {
		return err
	}
	for i := range batch.Lanes {
		lane, reply := req.Lanes[i].Lane, &batch.Lanes[i]
		switch {
		case reply.Refused:
			w.lose(lane)
		case reply.Reset:
			w.dropResults(lane)
			w.lanes[lane] = newWorkerLane(req.Lanes[i].Lease)
		default:
			w.lanes[lane].rewind = 0
			w.publishAll(w.lanes[lane], reply.Records)
		}
	}
	return nil
}

// publishAll tries each record once; now and then one fails or is parked, and its key waits until that is settled.
func (w *worker) publishAll(l *workerLane, records []*core.Record) {
	for _, r := range records {
		if l.held[r.ID] {
			continue
		}
		if _, waits := l.blocked[r.Key()]; waits {
			l.rewindTo(r.ID)
			continue
		}
		l.held[r.ID] = true
		switch n := w.rng.IntN(100); {
		case n < 8:
			l.blocked[r.Key()] = r.EventID
			w.results = append(w.results, failed(r, r.Attempts+1, 0))
		case n < 10:
			l.blocked[r.Key()] = r.EventID
			w.results = append(w.results, parked(r, r.Attempts+1))
		default:
			w.ledger.publish(r)
			w.published++
			w.results = append(w.results, published(r))
		}
	}
}

func (w *worker) settle(ctx context.Context) error {
	if len(w.results) == 0 {
		return nil
	}
	req := core.Settlement{Member: w.member(), Items: w.results}
	w.results = nil
	for _, lane := range slices.Sorted(maps.Keys(w.lanes)) {
		if slices.ContainsFunc(req.Items, func(i core.SettleItem) bool { return i.Record.Lane == lane }) {
			req.Leases = append(req.Leases, w.lanes[lane].lease)
		}
	}
	reply, err := w.store.Settle(ctx, req)
	if err != nil {
		return err
	}
	for _, lane := range reply.Refused {
		w.lose(lane)
	}
	for _, item := range req.Items {
		if l := w.lanes[item.Record.Lane]; l != nil {
			w.settled(l, item, slices.Contains(reply.Missed, item.Record))
		}
	}
	return nil
}

func (w *worker) settled(l *workerLane, item core.SettleItem, missed bool) {
	r := item.Record
	delete(l.held, r.ID)
	if l.blocked[r.Key()] == r.EventID {
		delete(l.blocked, r.Key())
	}
	if missed || item.Status == core.StatusFailed {
		l.rewindTo(r.ID)
	}
	if !missed {
		w.ledger.settle(item)
	}
}
