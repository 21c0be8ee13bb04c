package sim_test

import (
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// state is how a row stands. Those up to blocked are not settled.
type state int

const (
	pending state = iota
	blocked
	published
	parked
	discarded
)

func (s state) String() string {
	return []string{"pending", "blocked", "published", "parked", "discarded"}[s]
}

// backend is a store with the server behind it, and what writers and people do there by SQL. Its methods are called at
// moments of the agenda.
type backend interface {
	// store is a process's own handle on the store.
	store(p *process) core.Store
	begin(early bool) transaction
	// rows are the committed rows by id.
	rows() []row
	// operate does something to a row, or to the key of it. done gets what was changed, at the moment of the commit, and
	// is not called when nothing was.
	operate(what operation, event string, key ordering.Key, done func(events ...string))
	// restart crashes the server and starts it again as it was; fail over replaces it by one that lags behind, and returns
	// the events that are lost.
	restart()
	failOver() (lost []string)
	// catchUp lets the replica catch up.
	catchUp()
	// setDown makes the server unreachable, or reachable again.
	setDown(down bool)
	// expire ends a member's leases.
	expire(member string)
}

type transaction interface {
	enqueue(event string, key ordering.Key)
	// end commits or rolls back. It returns false when the server has lost the transaction.
	end(commit bool) bool
}

// operation is what a person does.
type operation string

const (
	opRequeue    operation = "requeue"   // or replay
	opUnblock    operation = "unblock"   // the key
	opSkip       operation = "skip"      // the head of the key
	opDiscard    operation = "discard"   // what is parked
	opDelete     operation = "delete"    // by SQL
	opUnpublish  operation = "unpublish" // by SQL; only the sweep finds it
	opTryNow     operation = "try now"   // by SQL: no attempts, due at once
	opMarkAsDone operation = "mark"      // by SQL: as published
)

// operate runs the operation as one transaction with a statement and a commit.
func (b *model) operate(what operation, event string, key ordering.Key, done func(events ...string)) {
	var changed []string
	change := func(t *tx) bool {
		for _, c := range t.db.rows {
			r := c.see(t)
			if r.event != event && (r.key != key || what != opUnblock && what != opSkip) || !applies(what, r.state) {
				continue
			}
			if !c.lock(t) {
				return false
			}
			changed = append(changed, r.event)
			b.change(t, c, what)
			if what == opSkip {
				break
			}
		}
		return true
	}
	b.transact(&work{
		name: "person " + event, r: b.w.draw("person " + event), statements: []statement{change},
		end: func(err error) {
			if err == nil && len(changed) > 0 {
				done(changed...)
			}
		},
	})
}

// applies reports whether the operation is for a row in the state.
func applies(what operation, s state) bool {
	switch what {
	case opUnblock, opSkip:
		return s == blocked
	case opDiscard:
		return s == parked
	case opUnpublish:
		return s == published
	case opTryNow, opMarkAsDone:
		return s <= blocked
	default:
		return true
	}
}

func (b *model) change(t *tx, c *cell[row], what operation) {
	r := &c.next
	switch what {
	case opRequeue:
		r.replay++
		fallthrough
	case opUnblock:
		r.state, r.attempts, r.due = pending, 0, time.Time{}
		t.rewound(r.lane, r.id)
	case opTryNow:
		r.state, r.attempts, r.due = pending, 0, time.Time{}
	case opSkip:
		r.state, r.due = parked, time.Time{}
		t.rewound(r.lane, r.id)
	case opDiscard:
		r.state = discarded
	case opDelete:
		r.deleted = true
	case opUnpublish:
		r.state = pending
	case opMarkAsDone:
		r.state = published
	}
}

func (b *model) rows() []row {
	rows := make([]row, len(b.db.rows))
	for i, c := range b.db.rows {
		rows[i] = c.value
	}
	return rows
}

func (b *model) setDown(down bool) { b.down = down }
func (b *model) catchUp()          { b.standby = b.db.clone() }

func (b *model) expire(member string) {
	if m := b.db.members[member]; m != nil && m.writer == nil {
		m.value.expires = b.now()
	}
}

func (b *model) restart() { b.start(b.db.clone()) }

func (b *model) failOver() (lost []string) {
	known := map[string]bool{}
	if b.standby == nil {
		return nil
	}
	for _, c := range b.standby.rows {
		known[c.value.event] = true
	}
	for _, c := range b.db.rows {
		if !known[c.value.event] {
			lost = append(lost, c.value.event)
		}
	}
	b.start(b.standby.clone())
	return lost
}

// start makes what survived the server. Open transactions are gone; the sequence may have skipped ids, and without the
// last flush forgotten some.
func (b *model) start(db *database) {
	db.origin = b.db.origin + 1
	db.nextXid = db.done + 1 + b.w.r.Int64N(3)
	db.done = db.nextXid - 1
	highest := int64(0)
	if n := len(db.rows); n > 0 {
		highest = db.rows[n-1].value.id
	}
	switch b.w.r.IntN(3) {
	case 0:
		db.last = max(db.last, highest) + b.w.r.Int64N(33)
	case 1:
		db.last = highest
	default:
		db.last = max(db.last, highest)
	}
	b.db = db
}
