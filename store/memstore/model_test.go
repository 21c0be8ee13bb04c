package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
)

// The store keeps its unsettled rows sorted and remembers what it returned, while transactions commit in any order and
// rows are settled, requeued and deleted anywhere. A model that filters all rows anew each time must see the same.
func TestFetch_MatchesAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		m := newModel(t, seed)
		for range 250 {
			m.step()
		}
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

type model struct {
	testing.TB
	rng    *rand.Rand
	store  *memstore.Store
	leases []core.Lease
	open   []*modelTx
	events int
	rows   map[string]*modelRow
	held   []*core.Record
	closed []core.ClosedKey
	upTo   []int64 // by lane, of the last reply
}

type modelTx struct {
	*memstore.Tx
	rows []*modelRow
}

type modelRow struct {
	id      int64
	event   string
	key     string
	pending bool
	replay  int
	late    bool // committed since the last fetch
}

const modelLanes = 3

func newModel(t testing.TB, seed uint64) *model {
	t.Helper()
	m := &model{TB: t, rng: rand.New(rand.NewPCG(seed, 9)), rows: map[string]*modelRow{}, upTo: make([]int64, modelLanes)}
	m.store = open(t, memstore.Config{Lanes: modelLanes})
	m.leases = take(t, m.store, "m")
	return m
}

func (m *model) step() {
	switch m.rng.IntN(10) {
	case 0:
		m.open = append(m.open, &modelTx{Tx: m.store.Begin()})
	case 1, 2:
		m.enqueue()
	case 3, 4:
		m.end()
	case 5:
		m.settle()
	case 6:
		m.operate()
	default:
		m.fetch()
	}
}

func (m *model) enqueue() {
	if len(m.open) == 0 {
		return
	}
	tx := m.open[m.rng.IntN(len(m.open))]
	m.events++
	r := &modelRow{id: int64(m.events), event: fmt.Sprint("e", m.events), key: fmt.Sprint("k", m.rng.IntN(9)), pending: true}
	_, err := tx.Enqueue(m.Context(), event(r.event, r.key))
	must(m, err)
	tx.rows = append(tx.rows, r)
}

func (m *model) end() {
	if len(m.open) == 0 {
		return
	}
	i := m.rng.IntN(len(m.open))
	tx := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	if m.rng.IntN(4) == 0 {
		must(m, tx.Rollback())
		return
	}
	must(m, tx.Commit())
	for _, r := range tx.rows {
		r.late = true
		m.rows[r.event] = r
	}
}

// settle gives results for some of what is held; missed are those that were requeued or deleted meanwhile.
func (m *model) settle() {
	m.rng.Shuffle(len(m.held), func(i, j int) { m.held[i], m.held[j] = m.held[j], m.held[i] })
	n := m.rng.IntN(len(m.held) + 1)
	var items []core.SettleItem
	for _, r := range m.held[:n] {
		items = append(items, core.SettleItem{Record: r, Status: core.Status(1 + m.rng.IntN(3))})
	}
	settled := settle(m, m.store, "m", m.leases, items...)
	for _, item := range items {
		r := m.rows[item.Record.EventID]
		current := r != nil && r.pending && r.replay == item.Record.Replay
		if missed := slices.Contains(settled.Missed, item.Record); missed == current {
			m.Errorf("%s %s: missed is %t", item.Status, item.Record.EventID, missed)
		}
		if current && item.Status != core.StatusFailed {
			r.pending = false
		}
	}
	m.held = m.held[n:]
}

func (m *model) operate() {
	if len(m.rows) == 0 {
		return
	}
	all := m.sorted()
	r := all[m.rng.IntN(len(all))]
	if m.rng.IntN(4) == 0 {
		must(m, m.store.Delete(r.event))
		delete(m.rows, r.event)
		return
	}
	must(m, m.store.Requeue(r.event))
	r.pending = true
	r.replay++
}

func (m *model) sorted() []*modelRow {
	var all []*modelRow
	for _, r := range m.rows {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *modelRow) int { return int(a.id - b.id) })
	return all
}

func (m *model) fetch() {
	req := core.FetchRequest{Member: "m", MaxRecords: 1 + m.rng.IntN(6), MaxBytes: 1 << 20}
	m.close()
	for _, l := range m.leases {
		q := core.LaneFetch{Lease: l}
		if m.rng.IntN(4) == 0 {
			q.RewindFrom = 1 + m.rng.Int64N(int64(m.events)+1)
		}
		for _, r := range m.held {
			if r.Lane == l.Lane {
				q.Held = append(q.Held, r.ID)
			}
		}
		slices.Sort(q.Held)
		q.Closed = m.closed
		req.Lanes = append(req.Lanes, q)
	}
	batch, err := m.store.Fetch(m.Context(), req)
	must(m, err)
	m.compare(req, batch)
	for i, lane := range batch.Lanes {
		m.held = append(m.held, lane.Records...)
		m.upTo[i] = lane.UpTo
	}
	for _, r := range m.rows {
		r.late = false
	}
}

// close closes a key now and then, or reopens them all.
func (m *model) close() {
	switch m.rng.IntN(6) {
	case 0:
		key := ordering.Key{AggregateType: "order", AggregateID: fmt.Sprint("k", m.rng.IntN(9))}
		m.closed = append(m.closed, core.ClosedKey{Key: key, Head: 1 + m.rng.Int64N(int64(m.events)+1)})
	case 1:
		m.closed = nil
	}
}

// compare filters all rows and cuts them as the contract says: what is above After, and what was committed late.
func (m *model) compare(req core.FetchRequest, batch core.Batch) {
	var want []string
	cut := int64(core.EverythingAbove)
	for _, r := range m.sorted() {
		lane := ordering.Lane("order", r.key, modelLanes)
		after := batch.Lanes[lane].After
		if !r.pending || r.id <= after && !r.late || slices.Contains(req.Lanes[lane].Held, r.id) || m.isClosed(r, after) {
			continue
		}
		if len(want) == req.MaxRecords {
			cut = r.id
			break
		}
		want = append(want, r.event)
	}
	var got []*core.Record
	for i, lane := range batch.Lanes {
		got = append(got, lane.Records...)
		if q := req.Lanes[i]; q.RewindFrom != 0 && lane.After >= q.RewindFrom {
			m.Errorf("After is %d, RewindFrom %d", lane.After, q.RewindFrom)
		}
		if lane.After > m.upTo[i] {
			m.Errorf("After is %d, the last reply covered up to %d", lane.After, m.upTo[i])
		}
		if lane.UpTo != core.EverythingAbove && lane.UpTo >= cut {
			m.Errorf("UpTo is %d, the reply is cut at %d", lane.UpTo, cut)
		}
	}
	slices.SortFunc(got, func(a, b *core.Record) int { return int(a.ID - b.ID) })
	if !slices.Equal(eventIDs(got), want) && len(got)+len(want) > 0 {
		m.Errorf("fetched %v, want %v", eventIDs(got), want)
	}
}

func (m *model) isClosed(r *modelRow, after int64) bool {
	return slices.ContainsFunc(m.closed, func(c core.ClosedKey) bool { return c.AggregateID == r.key && c.Head <= after })
}
