package sim_test

import (
	"context"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
)

// memory is memstore as a backend.
type memory struct {
	w       *world
	tables  *memstore.Store
	commits []string // events in commit order
	down    bool
}

func newMemory(w *world) *memory {
	b := &memory{w: w}
	tables, err := memstore.New(memstore.Config{Lanes: w.plan.lanes, Fault: b.fault})
	if err != nil {
		w.t.Fatal(err)
	}
	b.tables = tables
	return b
}

func (b *memory) store(p *process) core.Store { return &memoryStore{b.tables.Replica(), p} }

// memoryStore is a process's handle. What is between it and the tables is in memory.fault.
type memoryStore struct {
	*memstore.Store
	p *process
}

var _ core.Waker = (*memoryStore)(nil)

// inCall is the key of a call in its context.
type inCall struct{}

// exchange is a call of memoryStore under way.
type exchange struct {
	*call
	settlement core.Settlement
	member     string
}

func (s *memoryStore) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	began := time.Now()
	reply, err := s.Store.Lease(s.begin(ctx, leaseOp(req), "", exchange{member: req.Member}), req)
	if err == nil {
		s.p.renewed(began)
	}
	return reply, err
}

func (s *memoryStore) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	return s.Store.Fetch(s.begin(ctx, opFetch, "", exchange{member: req.Member}), req)
}

func (s *memoryStore) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	if s.p.isDead() { // let the rest of its loop end
		return core.Settled{}, nil
	}
	return s.Store.Settle(s.begin(ctx, opSettle, subjectOf(req), exchange{member: req.Member, settlement: req}), req)
}

func (s *memoryStore) begin(ctx context.Context, op, subject string, e exchange) context.Context {
	e.call = s.p.newCall(op, subject)
	return context.WithValue(ctx, inCall{}, &e)
}

// fault waits for the moment of the request before the call is done, and for that of the answer after it.
func (b *memory) fault(ctx context.Context, at memstore.Point) error {
	c, ok := ctx.Value(inCall{}).(*exchange)
	if !ok { // a person or a writer
		return nil
	}
	if at.Done {
		b.w.settled(c.settlement, b.isWritten)
		c.reply(nil)
		return c.await(ctx)
	}
	c.start(func(c *call) { close(c.done) })
	if err := c.await(ctx); err != nil {
		return err
	}
	c.p.member = c.member
	b.w.checkSettlement(c.settlement)
	c.done = make(chan struct{})
	if b.down {
		return errConnection
	}
	return nil
}

// isWritten reports whether the row of a record stands as a settle that was just done may have left it.
func (b *memory) isWritten(r *core.Record) bool {
	now, found := b.tables.Row(r.EventID)
	return found && now.ID == r.ID && now.Replay == r.Replay && now.State == memstore.Parked
}

type memoryTx struct {
	b      *memory
	tx     *memstore.Tx
	events []string
}

func (b *memory) begin(bool) transaction { return &memoryTx{b: b, tx: b.tables.Begin()} }

func (t *memoryTx) enqueue(event string, key ordering.Key) {
	_, err := t.tx.Enqueue(context.Background(), core.Message{
		EventID: event, Topic: key.Topic, AggregateType: key.AggregateType, AggregateID: key.AggregateID,
		EventType: "thing.changed",
	})
	if err == nil {
		t.events = append(t.events, event)
	}
}

func (t *memoryTx) end(commit bool) bool {
	if !commit || t.b.down {
		_ = t.tx.Rollback()
		return false
	}
	if t.tx.Commit() != nil {
		return false
	}
	t.b.commits = append(t.b.commits, t.events...)
	return true
}

func (b *memory) rows() []row {
	states := map[memstore.State]state{
		memstore.Pending: pending, memstore.Blocked: blocked, memstore.Published: published, memstore.Parked: parked,
		memstore.Discarded: discarded,
	}
	var rows []row
	for _, r := range b.tables.Rows() {
		rows = append(rows, row{
			id: r.ID, event: r.EventID, key: r.Key(), attempts: r.Attempts, replay: r.Replay, state: states[r.State],
		})
	}
	return rows
}

func (b *memory) operate(what operation, event string, key ordering.Key, done func(events ...string)) {
	before := b.rows()
	var err error
	var n int
	ctx, one := context.Background(), core.DeadLetterFilter{EventIDs: []string{event}}
	switch what {
	case opRequeue:
		n, err = 1, b.tables.Requeue(event)
	case opUnblock:
		n, err = b.tables.Unblock(ctx, key)
	case opSkip:
		n, err = b.tables.SkipHead(ctx, key, "the test says so")
	case opDiscard:
		n, err = b.tables.DiscardDead(ctx, one, "the test says so")
	case opDelete:
		n, err = 1, b.tables.Delete(event)
	default: // nobody writes to a store in memory by SQL
		return
	}
	if err != nil {
		b.w.ledger.bad("%s of %s: %v", what, event, err)
	}
	if n == 0 {
		return
	}
	var changed []string
	after := b.rows()
	for _, r := range before {
		if !slices.Contains(after, r) {
			changed = append(changed, r.event)
		}
	}
	done(changed...)
}

func (b *memory) setDown(down bool) { b.down = down }
func (b *memory) catchUp()          {}
func (b *memory) expire(m string)   { b.tables.Expire(m) }
func (b *memory) restart()          { b.lose(0) }

func (b *memory) failOver() []string { return b.lose(b.w.r.IntN(6)) }

// lose restarts the server without the last events.
func (b *memory) lose(n int) (lost []string) {
	for len(b.commits) > 0 && len(lost) < n {
		last := b.commits[len(b.commits)-1]
		b.commits = b.commits[:len(b.commits)-1]
		if _, found := b.tables.Row(last); found {
			lost = append(lost, last)
		}
	}
	if err := b.tables.Restart(lost...); err != nil {
		b.w.ledger.bad("restart: %v", err)
	}
	return lost
}
