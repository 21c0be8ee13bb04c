package cursor_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

// database is PostgreSQL as far as order depends on it: xids, snapshots, one sequence, rows, leases, rewinds. Every
// method is one atomic moment.
type database struct {
	origin          uint64
	nextXid, done   int64 // the next xid, and the last one that completed
	open            map[int64]bool
	last            int64 // the sequence
	called          bool
	rows            map[int64]*row
	lanes           []leased
	expired         map[string]bool // members whose leases anybody may take
	rewinds         []rewound
	order           map[ordering.Key][]string // events in commit order
	locked          map[ordering.Key]bool     // writers of a key are serialised
	highest         int64                     // highest id ever committed
	shared          map[int]int               // settles under way that hold the lane
	breakSettleByID bool
	breakLast       bool // read the last id as a SELECT from the sequence does
}

type row struct {
	id               int64
	event            string
	key              ordering.Key
	lane             int
	attempts, replay int
	settled, parked  bool
	due              int64
}

type leased struct {
	owner string
	epoch int64
}

type rewound struct {
	lane int
	id   int64
}

func newDatabase(lanes int) *database {
	return &database{
		origin: 1, nextXid: 3, done: 2, open: map[int64]bool{}, last: 1, rows: map[int64]*row{},
		lanes: make([]leased, lanes), expired: map[string]bool{}, order: map[ordering.Key][]string{},
		locked: map[ordering.Key]bool{}, shared: map[int]int{},
	}
}

func (db *database) begin() int64 {
	xid := db.nextXid
	db.nextXid++
	db.open[xid] = true
	return xid
}

// end commits or aborts.
func (db *database) end(xid int64) {
	delete(db.open, xid)
	db.done = max(db.done, xid)
}

func (db *database) nextval() int64 {
	if !db.called {
		db.called = true
		return db.last
	}
	db.last++
	return db.last
}

// drawn is the last id that the sequence gave out. A SELECT from the sequence sees higher ones while one is being drawn.
func (db *database) drawn() int64 {
	if db.breakLast && db.called && db.nextXid%4 == 0 {
		return db.last + 3
	}
	if !db.called {
		return db.last - 1
	}
	return db.last
}

func (db *database) snapshot() cursor.Snapshot {
	s := cursor.Snapshot{Xmin: db.done + 1, Xmax: db.done + 1} // the last completed + 1, not the next
	for xid := range db.open {
		if xid < s.Xmax {
			s.Open = append(s.Open, xid)
			s.Xmin = min(s.Xmin, xid)
		}
	}
	slices.Sort(s.Open)
	return s
}

// over is pg_visible_in_snapshot of the present snapshot, for any of them.
func (db *database) over(xids []int64) bool {
	return slices.ContainsFunc(xids, func(x int64) bool { return x <= db.done && !db.open[x] })
}

func (db *database) sorted() []*row {
	return slices.SortedFunc(maps.Values(db.rows), func(a, b *row) int { return cmp.Compare(a.id, b.id) })
}

func (db *database) holds(member string, lane int, epoch int64) bool {
	return db.lanes[lane] == leased{member, epoch}
}

// query is rowsSQL.
type query struct {
	*cursor.Fetch
	plans []ordering.Plan
	limit int
}

func (db *database) read(q query) (rows []row, upTo int64) {
	upTo = cursor.Above
	for _, w := range db.sorted() {
		i := slices.IndexFunc(q.Lanes, func(b cursor.Bounds) bool { return b.Lane == w.lane })
		if w.settled || w.parked || i < 0 || !q.wants(i, w, db) {
			continue
		}
		rows = append(rows, *w)
		if len(rows) == q.limit {
			return rows, w.id
		}
	}
	return rows, upTo
}

func (q query) wants(i int, w *row, db *database) bool {
	b, plan := q.Lanes[i], q.plans[i]
	switch {
	case slices.Contains(plan.Held, w.id), w.id > b.Gate && slices.Contains(b.Returned, w.id):
		return false
	case slices.ContainsFunc(plan.Closed, func(c ordering.ClosedKey) bool { return c.Key == w.key && c.Head <= b.Position }):
		return false
	}
	return w.id > b.Gate || w.id > b.Mark && db.over(q.Few)
}

// settle writes one result, and reports whether it found the row.
func (db *database) settle(item *item, now int64) bool {
	w := db.rows[item.id]
	if w == nil || w.settled || w.parked {
		return false
	}
	if !db.breakSettleByID &&
		(w.event != item.event || w.replay != item.replay || item.origin != db.origin) {
		return false
	}
	switch item.kind {
	case ordering.WasDelivered:
		w.settled = true
	case ordering.WasCharged:
		w.attempts, w.due = item.attempts+1, now+item.wait
	case ordering.WasParked:
		w.parked = true
	}
	return true
}

// clone copies what survives a crash.
func (db *database) clone() *database {
	c := *db
	c.open, c.locked, c.shared = map[int64]bool{}, map[ordering.Key]bool{}, map[int]int{}
	c.rows = make(map[int64]*row, len(db.rows))
	for id, w := range db.rows {
		copied := *w
		c.rows[id] = &copied
	}
	c.lanes, c.rewinds = slices.Clone(db.lanes), slices.Clone(db.rewinds)
	c.expired = maps.Clone(db.expired)
	c.order = make(map[ordering.Key][]string, len(db.order))
	for key, events := range db.order {
		c.order[key] = slices.Clone(events)
	}
	return &c
}
