package memstore

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// table is what all handles share: the data of the database. mu guards everything and is never held while code of
// somebody else runs.
type table struct {
	mu      sync.Mutex
	lastID  int64
	byID    map[int64]*row
	byEvent map[string]*row
	lanes   []lane
	members map[string]time.Time // name -> end of the membership
	// fingerprints has the ordering strategy of each destination.
	fingerprints map[ordering.Outlet]string
	origin       uint64        // the incarnation of the server: Restart adds one
	news         chan struct{} // closed, and replaced, whenever version grows
	version      uint64        // grows whenever a fetch may find something new
}

// lane is one lane's lease and its unsettled rows.
type lane struct {
	owner   string // empty: given back
	epoch   int64
	expires time.Time
	// unsettled has the committed rows that are neither published nor parked, by id.
	unsettled []*row
	// rewinds are ids of rows that a person made unsettled again and whose owner was not told yet, oldest first.
	rewinds []int64
	// recent are the rows committed since the last reply to the owner, in commit order; some may be gone again.
	recent []*row
}

// row is one event. What stands above state never changes.
type row struct {
	msg     core.Message
	id      int64
	lane    int
	size    int
	created time.Time

	state       State
	attempts    int
	replay      int
	firstFailed time.Time
	due         time.Time // of the next attempt; zero: none failed yet
	blocked     bool      // no attempt is due before a person acts; only of pending rows
	reason      string
	since       time.Time // when it was settled or blocked
}

func newTable(lanes int) *table {
	return &table{
		byID:         map[int64]*row{},
		byEvent:      map[string]*row{},
		lanes:        make([]lane, lanes),
		members:      map[string]time.Time{},
		fingerprints: map[ordering.Outlet]string{},
		origin:       1,
		news:         make(chan struct{}),
	}
}

// announce wakes who sleeps.
func (t *table) announce() {
	t.version++
	close(t.news)
	t.news = make(chan struct{})
}

// insert adds a committed row.
func (t *table) insert(r *row) {
	t.byID[r.id], t.byEvent[r.msg.EventID] = r, r
	lane := &t.lanes[r.lane]
	lane.add(r)
	lane.recent = append(lane.recent, r)
}

// settle takes a pending row out of the order.
func (t *table) settle(r *row, state State, now time.Time) {
	r.state, r.since, r.blocked = state, now, false
	t.lanes[r.lane].remove(r)
}

// forget deletes a row.
func (t *table) forget(r *row) {
	if r.state == Pending {
		t.lanes[r.lane].remove(r)
	}
	r.state = deleted
	delete(t.byID, r.id)
	delete(t.byEvent, r.msg.EventID)
}

// unsettled finds the row that a record was read from, nil when it is no longer there or settled.
func (t *table) unsettled(id int64, eventID string) *row {
	r := t.byID[id]
	if r == nil || r.msg.EventID != eventID || r.state != Pending {
		return nil
	}
	return r
}

// holds reports whether the lease is member's and the current one. An expired lease that nobody took is.
func (t *table) holds(member string, l core.Lease) bool {
	if l.Lane < 0 || l.Lane >= len(t.lanes) || member == "" {
		return false
	}
	lane := &t.lanes[l.Lane]
	return lane.owner == member && lane.epoch == l.Epoch
}

// add puts a row in its place: nearly always the end, a late commit a little before it.
func (l *lane) add(r *row) {
	i, _ := l.find(r.id)
	l.unsettled = slices.Insert(l.unsettled, i, r)
}

// remove moves the shorter side over the gap. Rows are settled near the front, and a backlog behind them is long.
func (l *lane) remove(r *row) {
	i, _ := l.find(r.id)
	if i >= len(l.unsettled)/2 {
		l.unsettled = slices.Delete(l.unsettled, i, i+1)
		return
	}
	copy(l.unsettled[1:i+1], l.unsettled[:i])
	l.unsettled[0] = nil
	l.unsettled = l.unsettled[1:]
}

// split returns what a fetch has to look at: the late commits below the position, and the unsettled rows above it, both
// by id.
func (l *lane) split(position int64) (late, above []*row) {
	for _, r := range l.recent {
		if r.id <= position && r.state == Pending {
			late = append(late, r)
		}
	}
	slices.SortFunc(late, func(a, b *row) int { return cmp.Compare(a.id, b.id) })
	i, _ := l.find(position + 1)
	return late, l.unsettled[i:]
}

// told drops what a reply has told.
func (l *lane) told(recent, rewinds int) {
	clear(l.recent[:recent])
	l.recent, l.rewinds = l.recent[recent:], l.rewinds[rewinds:]
}

func (l *lane) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(l.unsettled, id, func(r *row, id int64) int { return cmp.Compare(r.id, id) })
}

// key is the row's unit of order.
func (r *row) key() ordering.Key {
	return ordering.Key{Topic: r.msg.Topic, AggregateType: r.msg.AggregateType, AggregateID: r.msg.AggregateID}
}

// record is the row as a Store hands it out: a copy, which the caller owns.
func (r *row) record(origin uint64, now time.Time) *core.Record {
	record := &core.Record{
		Message:       copyMessage(r.msg),
		ID:            r.id,
		Lane:          r.lane,
		CreatedAt:     r.created,
		Attempts:      r.attempts,
		FirstFailedAt: r.firstFailed,
		Replay:        r.replay,
		Origin:        origin,
	}
	switch {
	case r.blocked:
		record.Delay = core.Forever
	case !r.due.IsZero():
		record.Delay = r.due.Sub(now)
	}
	return record
}

func copyMessage(m core.Message) core.Message {
	m.Payload = bytes.Clone(m.Payload)
	m.Headers = maps.Clone(m.Headers)
	return m
}
