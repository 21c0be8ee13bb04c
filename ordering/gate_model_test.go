package ordering

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The model drives the real gate and queue of one lane over a small database and broker, every step of which is one
// moment chosen by a seed. It checks that the first occurrences of a key land in commit order and that nothing stays
// behind. What it knows of the gate is its exported API.

var modelSeeds = flag.Uint64("gate.seeds", 3000, "seeds of the gate model")

func TestGate_KeepsOrderAndLosesNothing(t *testing.T) {
	t.Parallel()
	landed := 0
	for seed := range *modelSeeds {
		m := runModel(seed)
		if m.fault != "" {
			t.Fatalf("seed %d: %s\n%s", seed, m.fault, strings.Join(runTraced(seed), "\n"))
		}
		landed += len(m.log)
	}
	t.Logf("%d seeds, %d messages landed", *modelSeeds, landed)
}

type row struct {
	id               int64
	event            string
	key              Key
	outlet           Outlet
	replay, attempts int
	settled, parked  bool
	due              time.Time
	blocked          bool
	passed           bool // the position went by it while it was visible
}

type model struct {
	r      *rand.Rand
	now    time.Time
	gate   *Gate[*row]
	queue  *Queue[*row]
	rows   map[int64]*row
	nextID int64
	open   []*tx
	locked map[Key]bool
	order  map[Key][]string // commit order
	pos    int64
	rew    []int64 // rewind rows

	later    []func() // answers under way
	answered []*settleItem
	paused   map[Outlet]bool
	poison   map[string]bool
	log      []string
	at       map[string]int
	exempt   map[string]bool // parked or deleted once: out of the order
	must     map[string]int  // has to land after this place
	draining bool
	limit    int
	runs     bool
	blocks   bool // exhausted records block their key, instead of being parked
	excludes bool // the store leaves out closed keys, as it should, so that they do not fill the reply
	fault    string
	trace    []string
	tracing  bool
}

type tx struct{ rows []*row }

type settleItem struct {
	entry  *Entry[*row]
	replay int
	kind   Settlement
	due    time.Time
	blocks bool
}

func runModel(seed uint64) *model { return newModel(seed, false).run() }

func runTraced(seed uint64) []string { return newModel(seed, true).run().trace }

func newModel(seed uint64, tracing bool) *model {
	r := rand.New(rand.NewPCG(seed, 1))
	q := NewQueue[*row]()
	return &model{
		r: r, now: time.Unix(1000, 0), queue: q, gate: NewGate(q), rows: map[int64]*row{}, locked: map[Key]bool{},
		order: map[Key][]string{}, paused: map[Outlet]bool{}, poison: map[string]bool{}, at: map[string]int{},
		exempt: map[string]bool{}, must: map[string]int{}, limit: 1 + r.IntN(4), runs: r.IntN(2) == 0, blocks: r.IntN(3) == 0,
		excludes: r.IntN(4) > 0, tracing: tracing,
	}
}

func (m *model) run() *model {
	for step := 0; m.fault == ""; step++ {
		m.now = m.now.Add(time.Second)
		if m.draining = step > 400; m.draining && m.idle() {
			break
		}
		if step > 20000 {
			m.bad("never drained: %s", m.pending())
		}
		switch n := m.r.IntN(10); {
		case n < 2:
			m.write()
		case n < 4:
			m.fetch()
		case n < 5:
			m.publish()
		case n < 8 && len(m.later) > 0:
			i := m.r.IntN(len(m.later))
			f := m.later[i]
			m.later = slices.Delete(m.later, i, i+1)
			f()
		case n < 9:
			m.settle()
		default:
			m.trouble()
		}
	}
	if m.fault == "" && m.gate.Blocked(Outlet{}) {
		m.bad("a key is told as blocked, and nothing is pending")
	}
	for event, place := range m.must {
		if m.fault == "" && m.at[event] <= place && !m.exempt[event] {
			m.bad("replay of %s was lost", event)
		}
	}
	return m
}

func (m *model) bad(format string, args ...any) {
	if m.fault == "" {
		m.fault = fmt.Sprintf(format, args...)
	}
}

func (m *model) say(format string, args ...any) {
	if m.tracing {
		m.trace = append(m.trace, fmt.Sprintf(format, args...))
	}
}

func (m *model) idle() bool {
	return len(m.open) == 0 && len(m.later) == 0 && len(m.answered) == 0 && len(m.rew) == 0 && m.pending() == "" &&
		len(m.paused) == 0
}

func (m *model) pending() (text string) {
	for _, w := range m.sorted() {
		if !w.settled && !w.parked {
			text += fmt.Sprintf(" %d/%s", w.id, w.event)
		}
	}
	return text
}

func (m *model) sorted() []*row {
	return slices.SortedFunc(maps.Values(m.rows), func(a, b *row) int { return cmp.Compare(a.id, b.id) })
}

// write begins, goes on with or ends a transaction. Writers of one key are serialised; ids are drawn before commit.
func (m *model) write() {
	if !m.draining && len(m.open) < 4 && m.nextID < 30 && m.r.IntN(2) == 0 {
		k := Key{AggregateType: "t", AggregateID: string(rune('a' + m.r.IntN(3)))}
		if m.locked[k] {
			return
		}
		m.locked[k] = true
		t := &tx{}
		for range 1 + m.r.IntN(2) {
			m.nextID++
			outlet := Outlet{Destination: string(rune('A' + m.r.IntN(2)))}
			if k.AggregateID != "c" { // c goes to both, the others to one
				outlet.Destination = "A"
			}
			t.rows = append(t.rows, &row{id: m.nextID, event: fmt.Sprintf("e%d", m.nextID), key: k, outlet: outlet})
		}
		m.open = append(m.open, t)
		return
	}
	if len(m.open) == 0 {
		return
	}
	i := m.r.IntN(len(m.open))
	t := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	delete(m.locked, t.rows[0].key)
	if m.r.IntN(6) == 0 {
		return // rolled back
	}
	for _, w := range t.rows {
		m.say("commit %d %v %v", w.id, w.key, w.outlet)
		m.rows[w.id] = w
		m.order[w.key] = append(m.order[w.key], w.event)
	}
}

func (m *model) fetch() {
	if m.gate.Fetching() {
		return
	}
	plan := m.gate.BeginFetch(m.now)
	m.say("fetch %+v pos %d", plan, m.pos)
	m.later = append(m.later, func() {
		if !m.draining && m.r.IntN(12) == 0 {
			m.say("fetch fails")
			m.gate.FailFetch(m.now)
			return
		}
		reply := m.answer(plan)
		m.later = append(m.later, func() {
			m.say("reply after %d upto %d: %s rewound %v", reply.After, reply.UpTo, names(reply.Records), reply.Rewound)
			m.gate.EndFetch(m.now, reply)
		})
	})
}

// answer is the store: exact, with a position of its own.
func (m *model) answer(plan Plan) Reply[*row] {
	reply := Reply[*row]{UpTo: 1 << 60, Rewound: m.rew}
	for _, id := range m.rew {
		m.back(id)
	}
	m.rew = nil
	if plan.RewindFrom > 0 {
		m.back(plan.RewindFrom)
	}
	reply.After = m.pos
	top := m.pos
	for _, w := range m.sorted() {
		covered := m.excludes && slices.ContainsFunc(plan.Closed, func(c ClosedKey) bool { return c.Key == w.key && c.Head <= reply.After })
		if !w.settled && !w.parked && !w.passed && !covered && !slices.Contains(plan.Held, w.id) {
			if len(reply.Records) == m.limit {
				reply.UpTo = reply.Records[len(reply.Records)-1].ID
				top = reply.UpTo
				break
			}
			reply.Records = append(reply.Records, m.entry(w))
		}
		top = max(top, w.id)
	}
	m.back(top + 1)
	for _, w := range m.rows {
		w.passed = w.passed || w.id <= top
	}
	m.pos = top
	for _, ref := range plan.Heads {
		if w := m.rows[ref.ID]; w != nil && !w.settled && !w.parked {
			reply.Heads = append(reply.Heads, m.entry(w))
		}
	}
	return reply
}

// back moves the position below the id.
func (m *model) back(id int64) {
	m.pos = min(m.pos, id-1)
	for _, w := range m.rows {
		w.passed = w.passed && w.id < id
	}
}

func (m *model) entry(w *row) *Entry[*row] {
	e := &Entry[*row]{ID: w.id, EventID: w.event, Key: w.key, Outlet: w.outlet, Due: w.due, Bytes: 1, Blocked: w.blocked}
	if w.blocked {
		e.Due = m.now.Add(20 * time.Second)
	}
	snapshot := *w
	e.Value = &snapshot
	return e
}

func names(entries []*Entry[*row]) (text string) {
	for _, e := range entries {
		text += fmt.Sprintf(" %d", e.ID)
	}
	return text
}

func (m *model) publish() {
	outlet, ok := m.queue.Next(func(Outlet) bool { return true }) // of a paused outlet only a trial is ready
	if !ok {
		return
	}
	batch := m.queue.Take(outlet, Limit{Records: 1 + m.r.IntN(3), Runs: m.runs})
	m.say("publish%s", names(batch))
	failed := map[Key]bool{}
	down := !m.draining && m.r.IntN(8) == 0
	kinds := make([]int, len(batch))
	for i, e := range batch {
		switch {
		case failed[e.Key]:
			kinds[i] = 3 // skipped
		case down:
			kinds[i] = 2
		case m.poison[e.EventID], !m.draining && m.r.IntN(5) == 0:
			kinds[i] = 1
		case !m.draining && m.r.IntN(8) == 0:
			kinds[i] = 4 // landed, answer lost
		}
		failed[e.Key] = failed[e.Key] || kinds[i] != 0
	}
	m.later = append(m.later, func() {
		for i, e := range batch {
			if kinds[i] == 0 || kinds[i] == 4 {
				m.land(e)
			}
		}
		m.later = append(m.later, func() { m.answerBatch(outlet, batch, kinds) })
	})
}

func (m *model) answerBatch(outlet Outlet, batch []*Entry[*row], kinds []int) {
	if m.r.IntN(3) == 0 {
		outlet = Outlet{} // the whole broker
	}
	if slices.Contains(kinds, 2) && !m.draining {
		m.say("pause %v", outlet)
		m.paused[outlet] = true
		m.gate.Pause(m.now, outlet)
	}
	for i, e := range batch {
		m.say("answer %d kind %d", e.ID, kinds[i])
		switch kinds[i] {
		case 0:
			m.gate.Delivered(m.now, e)
			m.answered = append(m.answered, &settleItem{entry: e, kind: WasDelivered, replay: e.Value.replay})
		case 1:
			if !m.gate.Fail(m.now, e) {
				continue
			}
			item := &settleItem{entry: e, kind: WasCharged, replay: e.Value.replay, due: m.now.Add(time.Duration(m.r.IntN(20)) * time.Second)}
			if e.Value.attempts >= 2 {
				item.kind = WasParked
				if m.blocks {
					item.kind, item.blocks = WasCharged, true
				}
			}
			m.answered = append(m.answered, item)
		case 2:
			m.gate.Suspend(m.now, e, outlet)
		default:
			m.gate.Retry(m.now, e, m.now.Add(time.Duration(m.r.IntN(10))*time.Second))
		}
	}
}

// land is the broker's log: the order is checked here.
func (m *model) land(e *Entry[*row]) {
	m.say("LAND %d", e.ID)
	first := m.at[e.EventID] == 0
	m.log = append(m.log, e.EventID)
	m.at[e.EventID] = len(m.log)
	if !first || m.exempt[e.EventID] {
		return
	}
	for _, event := range m.order[e.Key] {
		if event == e.EventID {
			return
		}
		if m.at[event] == 0 && !m.exempt[event] && m.outletOf(event) == e.Outlet {
			m.bad("order: %s landed before %s", e.EventID, event)
		}
	}
}

func (m *model) outletOf(event string) Outlet {
	for _, w := range m.rows {
		if w.event == event {
			return w.outlet
		}
	}
	return Outlet{}
}

func (m *model) settle() {
	items := m.answered
	m.answered = nil
	if len(items) == 0 {
		return
	}
	m.later = append(m.later, func() {
		missed := make([]bool, len(items))
		for i, item := range items {
			missed[i] = !m.apply(item)
		}
		m.later = append(m.later, func() {
			for i, item := range items {
				m.say("settled %d kind %d missed %v", item.entry.ID, item.kind, missed[i])
				item.entry.Due, item.entry.Blocked = item.due, item.blocks
				m.gate.Settled(m.now, item.entry, item.kind, missed[i])
			}
		})
	})
}

func (m *model) apply(item *settleItem) bool {
	w := m.rows[item.entry.ID]
	if w == nil || w.replay != item.replay || w.settled || w.parked {
		return false
	}
	switch item.kind {
	case WasDelivered:
		w.settled = true
	case WasCharged:
		w.attempts = item.entry.Value.attempts + 1
		w.due, w.blocked = item.due, item.blocks
	case WasParked:
		w.parked = true
		m.exempt[w.event] = true
	}
	return true
}

// avoid keeps some records from being trials.
func (m *model) avoid() func(string) bool {
	return func(string) bool { return m.r.IntN(4) == 0 }
}

// unblock is a person who helps a blocked key.
func (m *model) unblock(w *row) {
	m.say("unblock %d", w.id)
	delete(m.poison, w.event)
	w.due, w.attempts, w.blocked = time.Time{}, 0, false
	w.replay++
	m.rew = append(m.rew, w.id)
}

// trouble is operators and outlets.
func (m *model) trouble() {
	for _, w := range m.sorted() {
		if m.draining && w.blocked && !w.settled && !w.parked {
			m.unblock(w)
		}
	}
	for _, o := range []Outlet{{}, {Destination: "A"}, {Destination: "B"}} {
		if !m.paused[o] {
			continue
		}
		if m.r.IntN(3) == 0 && m.gate.Try(m.now, o, m.avoid()) {
			m.say("try %v", o)
		}
		if m.r.IntN(6) == 0 || m.draining {
			m.say("resume %v", o)
			delete(m.paused, o)
			m.gate.Resume(m.now, o)
		}
	}
	if m.draining || len(m.rows) == 0 {
		return
	}
	all := m.sorted()
	w := all[m.r.IntN(len(all))]
	switch m.r.IntN(12) {
	case 0:
		if !w.settled {
			m.say("delete %d", w.id)
			delete(m.rows, w.id)
			m.exempt[w.event] = true
		}
	case 1, 2, 3:
		m.say("requeue %d", w.id)
		if w.settled || w.parked {
			m.must[w.event] = len(m.log)
			delete(m.poison, w.event)
		}
		w.settled, w.parked, w.attempts, w.due, w.blocked = false, false, 0, time.Time{}, false
		w.replay++
		m.rew = append(m.rew, w.id)
	case 4:
		if !w.settled && !w.parked { // somebody's plain UPDATE, without a rewind
			m.say("touch %d", w.id)
			w.replay++
		}
	case 5:
		m.poison[w.event] = true
	}
}
