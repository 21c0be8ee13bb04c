package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/internal/chaos/ledger"
	"github.com/go-outbox/outbox/internal/chaos/server"
)

// What the writers do.
const (
	writers           = 20
	keys              = 200
	rollbackPercent   = 8
	heldOpenPercent   = 3
	longestHeldOpen   = time.Second
	mostKeys          = 3 // of one transaction
	mostEvents        = 5
	transactionBudget = 20 * time.Second
)

// service is an application that writes events by plain SQL and keeps a ledger of them.
type service struct {
	pool   *pgxpool.Pool
	ledger ledger.Ledger
	locks  [keys]sync.Mutex // whoever holds one is the only writer of that key
	ids    atomic.Int64
	seed   uint64
	rate   int // transactions a second
}

// write runs the writers until the time is up; a transaction that has begun is finished. ctx aborts.
func (s *service) write(ctx context.Context, up <-chan struct{}) error {
	faults := make([]error, writers)
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(s.seed, uint64(n))) //nolint:gosec // a run can be repeated
			tick := time.NewTicker(writers * time.Second / time.Duration(s.rate))
			defer tick.Stop()
			for faults[n] == nil {
				select {
				case <-tick.C:
					faults[n] = s.transact(ctx, random)
				case <-up:
					return
				case <-ctx.Done():
					return
				}
			}
		})
	}
	writing.Wait()
	return errors.Join(faults...)
}

// event is one of a key.
type event struct {
	key int
	id  string
}

func (e event) keyName() string { return fmt.Sprintf("acc_%d", e.key) }

// plan is a transaction.
type plan struct {
	keys     []int // sorted, each once
	events   []event
	rollBack bool
	hold     time.Duration
}

func (s *service) plan(random *rand.Rand) plan {
	var p plan
	for range 1 + random.IntN(mostKeys) {
		p.keys = append(p.keys, random.IntN(keys))
	}
	slices.Sort(p.keys)
	p.keys = slices.Compact(p.keys)
	for range 1 + random.IntN(mostEvents) {
		p.events = append(p.events, event{p.keys[random.IntN(len(p.keys))], fmt.Sprintf("e%d", s.ids.Add(1))})
	}
	p.rollBack = random.IntN(100) < rollbackPercent
	if random.IntN(100) < heldOpenPercent {
		p.hold = rand.N(longestHeldOpen) //nolint:gosec // any will do
	}
	return p
}

// transact writes the events of one transaction and notes those that were committed, while it holds the locks of their
// keys. A database that cannot be reached is no error.
func (s *service) transact(ctx context.Context, random *rand.Rand) error {
	p := s.plan(random)
	for _, key := range p.keys {
		s.locks[key].Lock()
		defer s.locks[key].Unlock()
	}
	attempt, cancel := context.WithTimeout(ctx, transactionBudget)
	defer cancel()
	tx, err := s.pool.Begin(attempt)
	if err != nil {
		return unlessAway(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	xid, err := insert(attempt, tx, p.events)
	if err != nil {
		return unlessAway(err)
	}
	pause(attempt, p.hold)
	if p.rollBack {
		s.ledger.RollBack(len(p.events))
		return nil
	}
	if err := tx.Commit(attempt); err != nil {
		committed, err := s.outcome(ctx, xid, p.events)
		if err != nil || !committed {
			return err
		}
	}
	for _, e := range p.events {
		s.ledger.Commit(e.keyName(), e.id)
	}
	return nil
}

// unlessAway drops the error of a transaction that was not committed because the database is away: that is the life of
// this service. Anything else would keep it from writing at all, unnoticed.
func unlessAway(err error) error {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return nil // a lost connection, or none
	}
	const operatorIntervention, connectionException, insufficientResources = "57", "08", "53"
	switch answer.Code[:2] {
	case operatorIntervention, connectionException, insufficientResources:
		return nil
	}
	return err
}

// insert writes the events one by one, so that those of several transactions draw their ids in turns.
func insert(ctx context.Context, tx pgx.Tx, events []event) (xid string, err error) {
	for _, e := range events {
		payload := fmt.Sprintf(`{"key": %q, "event": %q}`, e.keyName(), e.id)
		if err := tx.QueryRow(ctx, `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, payload)
			VALUES ($1, $2, $3, 'account.changed', $4) RETURNING pg_current_xact_id()::text`,
			e.id, server.Topic, e.keyName(), payload).Scan(&xid); err != nil {
			return "", err
		}
	}
	return xid, nil
}

// outcome finds out what became of a transaction whose commit was not answered: once it is over, its events are there or
// not.
func (s *service) outcome(ctx context.Context, xid string, events []event) (committed bool, err error) {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.id)
	}
	for ctx.Err() == nil {
		var goesOn bool
		var found int
		// Two statements: the snapshot of one might be older than the end of the transaction that it sees.
		err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_xid = ($1::text)::xid8::xid)`, xid).Scan(&goesOn)
		if err == nil && !goesOn {
			err = s.pool.QueryRow(ctx, `SELECT count(*) FROM outbox WHERE event_id = ANY($1)`, ids).Scan(&found)
		}
		switch {
		case err != nil || goesOn:
			pause(ctx, 50*time.Millisecond)
		case found != 0 && found != len(ids):
			return false, fmt.Errorf("%d of the %d events of one transaction are in the table: %v", found, len(ids), ids)
		default:
			return found > 0, nil
		}
	}
	return false, ctx.Err()
}

// pause waits, or returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
