package sim_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

// database is PostgreSQL as far as order depends on it: xids, snapshots, one sequence, rows, leases and rewinds, with
// the locks on them. What a transaction changes is seen by others once it has committed.
type database struct {
	origin        uint64
	nextXid, done int64 // the next xid, and the last one that completed
	open          map[int64]bool
	last          int64 // the last id drawn
	rows          []*cell[row]
	lanes         []*cell[leased]
	members       map[string]*cell[membership]
	rewinds       []rewind
	rewindSeq     int64
}

type row struct {
	id               int64
	event            string
	key              ordering.Key
	lane             int
	attempts, replay int
	state            state
	due              time.Time
	deleted          bool
}

type leased struct {
	owner string
	epoch int64
}

type membership struct {
	known   bool
	expires time.Time
}

type rewind struct {
	seq  int64
	lane int
	id   int64
}

func newDatabase(lanes int) *database {
	db := &database{origin: 1, nextXid: 3, done: 2, open: map[int64]bool{}, members: map[string]*cell[membership]{}}
	for range lanes {
		db.lanes = append(db.lanes, &cell[leased]{})
	}
	return db
}

// tx is a transaction. It has a xid once it needs one.
type tx struct {
	db   *database
	xid  int64
	ends []func(commit bool)
	over bool
}

func (db *database) begin() *tx { return &tx{db: db} }

func (t *tx) obtainXid() int64 {
	if t.xid == 0 {
		t.xid = t.db.nextXid
		t.db.nextXid++
		t.db.open[t.xid] = true
	}
	return t.xid
}

// nextval draws an id. Whoever does has a xid before.
func (t *tx) nextval() int64 {
	t.obtainXid()
	t.db.last++
	return t.db.last
}

func (t *tx) insert(r row) {
	t.obtainXid()
	t.ends = append(t.ends, func(commit bool) {
		if commit {
			at, _ := t.db.find(r.id)
			t.db.rows = slices.Insert(t.db.rows, at, &cell[row]{value: r})
		}
	})
}

// rewound adds a rewind.
func (t *tx) rewound(lane int, id int64) {
	t.obtainXid()
	t.db.rewindSeq++
	seq := t.db.rewindSeq
	t.ends = append(t.ends, func(commit bool) {
		if commit {
			t.db.rewinds = append(t.db.rewinds, rewind{seq, lane, id})
		}
	})
}

func (t *tx) end(commit bool) {
	if t.over {
		return
	}
	t.over = true
	for _, end := range t.ends {
		end(commit)
	}
	if t.xid != 0 {
		delete(t.db.open, t.xid)
		t.db.done = max(t.db.done, t.xid)
	}
	t.db.rows = slices.DeleteFunc(t.db.rows, func(c *cell[row]) bool { return c.value.deleted })
}

// cell is a row of some table: what is committed, who has it locked, and what the one who changes it will commit.
type cell[T any] struct {
	value, next T
	writer      *tx
	readers     []*tx
}

// see returns what the transaction sees.
func (c *cell[T]) see(t *tx) T {
	if t != nil && c.writer == t {
		return c.next
	}
	return c.value
}

// lock takes the row for changes (FOR UPDATE), or returns false: the caller waits, or skips it.
func (c *cell[T]) lock(t *tx) bool {
	if c.writer == t {
		return true
	}
	if c.writer != nil || slices.ContainsFunc(c.readers, func(other *tx) bool { return other != t }) {
		return false
	}
	t.obtainXid()
	c.writer, c.next = t, c.value
	t.ends = append(t.ends, func(commit bool) {
		if c.writer = nil; commit {
			c.value = c.next
		}
	})
	return true
}

// share takes the row FOR SHARE, or returns false.
func (c *cell[T]) share(t *tx) bool {
	if c.writer != nil && c.writer != t {
		return false
	}
	t.obtainXid()
	c.readers = append(c.readers, t)
	t.ends = append(t.ends, func(bool) {
		c.readers = slices.DeleteFunc(c.readers, func(other *tx) bool { return other == t })
	})
	return true
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

// anyOver is pg_visible_in_snapshot of the present snapshot, for any of them.
func (db *database) anyOver(xids []int64) bool {
	return slices.ContainsFunc(xids, func(x int64) bool { return x <= db.done && !db.open[x] })
}

// find returns where the row with the id is, or would be.
func (db *database) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(db.rows, id, func(c *cell[row], id int64) int { return cmp.Compare(c.value.id, id) })
}

// row returns the row with the id, or nil.
func (db *database) row(id int64) *cell[row] {
	if at, found := db.find(id); found {
		return db.rows[at]
	}
	return nil
}

func (db *database) memberNames() []string { return slices.Sorted(maps.Keys(db.members)) }

// clone is what survives a crash of the server, as it is on the disk now.
func (db *database) clone() *database {
	c := *db
	c.open, c.rows, c.lanes = map[int64]bool{}, nil, nil
	for _, r := range db.rows {
		c.rows = append(c.rows, &cell[row]{value: r.value})
	}
	for _, l := range db.lanes {
		c.lanes = append(c.lanes, &cell[leased]{value: l.value})
	}
	c.members = map[string]*cell[membership]{}
	for name, m := range db.members {
		c.members[name] = &cell[membership]{value: m.value}
	}
	c.rewinds = slices.Clone(db.rewinds)
	return &c
}
