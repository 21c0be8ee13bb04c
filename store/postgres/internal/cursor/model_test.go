package cursor_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// The model drives the real cursor and the real gate: dispatchers, each with a cursor and a gate for every lane it
// holds, over a database and a broker's log. Every statement, landing and answer is one moment chosen by a seed.
// It checks that the first occurrences of a key land in commit order, that nothing is published that was not committed,
// and that nothing stays behind.

var (
	modelSeeds = flag.Uint64("cursor.seeds", 1500, "seeds of the cursor model")
	firstSeed  = flag.Uint64("cursor.first", 0, "first seed")
	// broken switches off a rule that is kept in SQL and not in the cursor: xmax, idfirst, byid, lastid.
	broken = flag.String("cursor.broken", "", "rule of the SQL to break")
)

func TestCursor_KeepsOrderAndLosesNothing(t *testing.T) {
	t.Parallel()
	landed, fetches := 0, 0
	for seed := *firstSeed; seed < *firstSeed+*modelSeeds; seed++ {
		m := newModel(seed, false)
		m.run()
		if m.fault != "" {
			traced := newModel(seed, true)
			traced.run()
			t.Fatalf("seed %d: %s\n%s", seed, m.fault, strings.Join(traced.trace, "\n"))
		}
		landed += len(m.log)
		fetches += m.fetches
	}
	t.Logf("%d seeds, %d fetches, %d messages landed", *modelSeeds, fetches, landed)
}

type model struct {
	r           *rand.Rand
	seed        uint64
	step        int64
	db, standby *database
	dispatchers []*dispatcher
	members     int
	later       []later // statements, landings and answers under way
	writers     []*writer
	holder      int64 // xid of a transaction that stays open for long

	keys, limit, events, maxEvents, fetches int
	crashes, draining                       bool

	log    []string
	at     map[string]int // place of the first landing + 1
	last   map[string]int // place of the last landing + 1
	keyOf  map[string]ordering.Key
	exempt map[string]bool // parked, deleted or lost in a failover: out of the order
	poison map[string]bool
	must   map[string]int // has to land after this place

	fault   string
	tracing bool
	trace   []string
}

// later is something under way; of a dispatcher's own steps nothing happens after its crash.
type later struct {
	of *dispatcher
	do func()
}

type writer struct {
	xid          int64
	key          ordering.Key
	early        bool // wrote something else before it locked the key
	locked, dead bool
	rows         []*row
	want         int
}

func newModel(seed uint64, tracing bool) *model {
	r := rand.New(rand.NewPCG(seed, 6))
	lanes := 1 + r.IntN(2)
	m := &model{
		r: r, seed: seed, db: newDatabase(lanes), keys: 1 + r.IntN(4), limit: 1 + r.IntN(4), maxEvents: 6 + r.IntN(24),
		crashes: seed%2 == 0, at: map[string]int{}, last: map[string]int{}, keyOf: map[string]ordering.Key{},
		exempt: map[string]bool{}, poison: map[string]bool{}, must: map[string]int{}, tracing: tracing,
	}
	m.db.breakSettleByID = *broken == "byid"
	m.db.breakLast = *broken == "lastid"
	for range 1 + r.IntN(2) {
		m.dispatchers = append(m.dispatchers, newDispatcher(m))
	}
	return m
}

func (m *model) now() time.Time { return time.Unix(1000+m.step, 0) }

func (m *model) bad(format string, args ...any) {
	if m.fault == "" {
		m.fault = fmt.Sprintf(format, args...)
		m.say("FAULT %s", m.fault)
	}
}

func (m *model) say(format string, args ...any) {
	if m.tracing {
		m.trace = append(m.trace, fmt.Sprintf("%4d ", m.step)+fmt.Sprintf(format, args...))
	}
}

func (m *model) remote(do func())               { m.later = append(m.later, later{do: do}) }
func (m *model) local(d *dispatcher, do func()) { m.later = append(m.later, later{d, do}) }

func (m *model) run() {
	for m.fault == "" {
		m.step++
		if m.draining = m.step > 700; m.draining && m.drained() {
			m.finish()
			return
		}
		if m.step > 30000 {
			m.bad("never drained: %s", m.pending())
			return
		}
		switch n := m.r.IntN(20); {
		case n < 6:
			m.write()
		case n < 12:
			m.proceed()
		case n < 19:
			m.dispatchers[m.r.IntN(len(m.dispatchers))].act()
		default:
			m.trouble()
		}
		if m.stormy() && !m.draining && m.r.IntN(60) == 0 {
			m.trouble()
		}
	}
}

func (m *model) drained() bool {
	return len(m.writers) == 0 && m.pending() == "" && len(m.db.rewinds) == 0
}

func (m *model) finish() {
	for event, place := range m.must {
		if m.last[event] <= place && !m.exempt[event] {
			m.bad("the replay of %s got lost", event)
		}
	}
	for _, w := range m.db.sorted() {
		if m.at[w.event] == 0 && !w.parked && !m.exempt[w.event] {
			m.bad("%s with id %d is marked as published but never landed", w.event, w.id)
		}
	}
}

func (m *model) pending() (text string) {
	for _, w := range m.db.sorted() {
		if !w.settled && !w.parked {
			text += fmt.Sprintf(" %d/%s", w.id, w.event)
		}
	}
	return text
}

// proceed lets one of the things under way happen.
func (m *model) proceed() {
	if len(m.later) == 0 {
		return
	}
	i := 0
	if m.r.IntN(3) > 0 {
		i = m.r.IntN(len(m.later))
	}
	next := m.later[i]
	m.later = slices.Delete(m.later, i, i+1)
	if next.of == nil || !next.of.dead {
		next.do()
	}
}

// write begins, goes on with or ends a transaction. Whoever writes a key has locked it before.
func (m *model) write() {
	if m.holder != 0 && (m.draining && m.step > 1500 || !m.draining && m.r.IntN(150) == 0) {
		m.say("the long transaction %d ends", m.holder)
		m.db.end(m.holder)
		m.holder = 0
	}
	if !m.draining && len(m.writers) < 5 && m.events < m.maxEvents && m.r.IntN(4) == 0 {
		if m.holder == 0 && m.r.IntN(6) == 0 {
			m.holder = m.db.begin()
			m.say("the long transaction %d begins", m.holder)
			return
		}
		key := ordering.Key{AggregateType: "t", AggregateID: fmt.Sprint(m.r.IntN(m.keys))}
		m.writers = append(m.writers, &writer{key: key, want: 1 + m.r.IntN(2), early: m.r.IntN(2) == 0})
		return
	}
	if len(m.writers) > 0 {
		i := m.r.IntN(len(m.writers))
		m.goOn(m.writers[i])
		m.writers = slices.DeleteFunc(m.writers, func(w *writer) bool { return w.dead })
	}
}

func (m *model) goOn(w *writer) {
	switch {
	case w.early && w.xid == 0:
		w.xid = m.db.begin()
	case !w.locked:
		if !m.db.locked[w.key] {
			m.db.locked[w.key], w.locked = true, true
		}
	case w.xid == 0 && (*broken != "idfirst" || len(w.rows) > 0): // the xid comes before the id
		w.xid = m.db.begin()
	case len(w.rows) < w.want && (w.xid != 0 || len(w.rows) == 0):
		m.events++
		event := fmt.Sprintf("e%d", m.events)
		id := m.db.nextval()
		w.rows = append(w.rows, &row{id: id, event: event, key: w.key, lane: int(w.key.AggregateID[0]) % len(m.db.lanes)})
		m.keyOf[event] = w.key
		m.say("transaction %d draws id %d for %s of key %s", w.xid, id, event, w.key)
	case m.draining || m.r.IntN(4) == 0:
		m.end(w, m.r.IntN(6) > 0)
	}
}

func (m *model) end(w *writer, commit bool) {
	m.say("transaction %d ends, commit %t", w.xid, commit)
	if commit {
		for _, r := range w.rows {
			m.db.rows[r.id] = r
			m.db.highest = max(m.db.highest, r.id)
			m.db.order[w.key] = append(m.db.order[w.key], r.event)
		}
	}
	m.db.end(w.xid)
	delete(m.db.locked, w.key)
	w.dead = true
}

// land is the broker's log.
func (m *model) land(event string) {
	first := m.at[event] == 0
	m.log = append(m.log, event)
	m.last[event] = len(m.log)
	m.say("LAND %s of key %s", event, m.keyOf[event])
	if !first {
		return
	}
	m.at[event] = len(m.log)
	if m.exempt[event] {
		return
	}
	for _, before := range m.db.order[m.keyOf[event]] {
		if before == event {
			return
		}
		if m.at[before] == 0 && !m.exempt[before] {
			m.bad("order: %s landed before %s of the same key", event, before)
		}
	}
	m.bad("%s landed and was not committed", event)
}

// trouble is people at work, and whatever breaks.
func (m *model) trouble() {
	if m.draining {
		return
	}
	d := m.dispatchers[m.r.IntN(len(m.dispatchers))]
	switch n := m.r.IntN(10); {
	case n < 5:
		m.operate()
	case n < 7:
		m.say("%s is silent for too long", d.member)
		m.db.expired[d.member] = true
		d.trusted = false
		d.silences++
	case n < 8:
		m.say("%s crashes", d.member)
		d.dead = true
		m.dispatchers[slices.Index(m.dispatchers, d)] = newDispatcher(m)
	case m.crashes && (m.r.IntN(3) == 0 || m.stormy() && m.standby != nil):
		m.crash()
	case m.standby == nil || m.r.IntN(4) == 0:
		m.standby = m.db.clone()
	}
}

// stormy seeds are about failovers.
func (m *model) stormy() bool { return m.seed%8 == 0 }

func (m *model) alive(member string) bool {
	return slices.ContainsFunc(m.dispatchers, func(d *dispatcher) bool { return d.member == member })
}

// operate is a requeue, a replay or a deletion by hand, or a message turns out to be poison.
func (m *model) operate() {
	all := m.db.sorted()
	if len(all) == 0 {
		return
	}
	w := all[m.r.IntN(len(all))]
	switch n := m.r.IntN(8); {
	case n == 0 && !w.settled:
		m.say("delete %d %s", w.id, w.event)
		delete(m.db.rows, w.id)
		m.exempt[w.event] = true
	case n < 5:
		m.say("requeue %d %s, settled %t parked %t", w.id, w.event, w.settled, w.parked)
		if w.settled || w.parked {
			m.must[w.event] = len(m.log)
			delete(m.poison, w.event)
		}
		w.settled, w.parked, w.attempts, w.due = false, false, 0, 0
		w.replay++
		m.db.rewinds = append(m.db.rewinds, rewound{w.lane, w.id})
	case n == 5:
		m.poison[w.event] = true
	}
}

// crash restarts the server, or replaces it by a standby that lags behind. Open transactions are gone; the sequence
// may have skipped ids, and without the last flush forgotten some.
func (m *model) crash() {
	origin := m.db.origin + 1
	failover := m.standby != nil && m.r.IntN(2) == 0
	if failover {
		m.lose()
		m.db, m.standby = m.standby, nil
	} else {
		for _, w := range m.writers { // a commit may have been under way
			if w.xid != 0 && w.locked && len(w.rows) == w.want && m.r.IntN(2) == 0 {
				m.end(w, true)
			}
		}
		m.db = m.db.clone()
	}
	m.db.origin = origin
	m.db.nextXid = m.db.done + 1 + m.r.Int64N(3)
	m.db.done = m.db.nextXid - 1
	m.writers, m.holder = nil, 0
	if m.db.called {
		switch m.r.IntN(3) {
		case 0:
			m.db.last = max(m.db.last, m.db.highest) + m.r.Int64N(33)
		case 1:
			m.db.last = max(m.db.highest, 1)
		}
	}
	m.say("RESTART, failover %t, sequence %d, pending%s", failover, m.db.last, m.pending())
}

// lose takes what the standby does not know out of what is checked.
func (m *model) lose() {
	known := map[string]bool{}
	for _, events := range m.standby.order {
		for _, event := range events {
			known[event] = true
		}
	}
	for event := range m.keyOf {
		if !known[event] {
			m.exempt[event] = true
		}
	}
	maps.DeleteFunc(m.must, func(string, int) bool { return true })
}
