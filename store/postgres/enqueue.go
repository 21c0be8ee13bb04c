package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// In returns an Enqueuer for the transaction. A call of Enqueue is one round trip however many messages it gets; one
// more when an event id was there already.
func (s *Store) In(tx pgx.Tx) core.Enqueuer {
	if tx == nil {
		return noTransaction{}
	}
	return &enqueuer{store: s, tx: pgxTx{tx}}
}

// InSQL returns an Enqueuer for a transaction of database/sql, with pgx's stdlib driver or lib/pq.
func (s *Store) InSQL(tx *sql.Tx) core.Enqueuer {
	if tx == nil {
		return noTransaction{}
	}
	return &enqueuer{store: s, tx: sqlTx{tx}}
}

// InTx begins a transaction on the Store's pool, runs fn in it and commits it; then dispatchers in this process wake
// up. An error of fn rolls back and is returned as it is. fn uses tx and box, and not the pool, or it could wait for
// itself.
func (s *Store) InTx(ctx context.Context, fn func(tx pgx.Tx, box core.Enqueuer) error) error {
	if s.closing.Err() != nil {
		return fmt.Errorf("postgres: transaction: %w", core.ErrClosed)
	}
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("postgres: begin: %w", s.explain(err))
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if err := fn(tx, s.In(tx)); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("postgres: commit: %w", s.explain(err))
	}
	s.Nudge()
	return nil
}

type noTransaction struct{}

func (noTransaction) Enqueue(context.Context, ...core.Message) ([]string, error) {
	return nil, fmt.Errorf("postgres: enqueue: %w: the transaction is nil; begin one, or use Store.InTx, so that event "+
		"and data commit together", core.ErrNoTransaction)
}

// transaction is what an enqueuer needs of a user's transaction.
type transaction interface {
	// insert writes messages, with the locks of the keys if there are any, and returns how many rows it wrote.
	insert(ctx context.Context, q queries, keys []int64, messages []core.Message) (int64, error)
	// existing reads the messages stored under these event ids, without payload.
	existing(ctx context.Context, q queries, eventIDs []string) ([]core.Message, error)
}

type enqueuer struct {
	store *Store
	tx    transaction
}

// Enqueue is described at [core.Enqueuer]. After an *[core.EventConflictError] the other messages of the call are
// written: roll the transaction back.
func (e *enqueuer) Enqueue(ctx context.Context, messages ...core.Message) ([]string, error) {
	valid, err := core.ValidateAll(messages, e.store.checkPayload)
	if err != nil {
		return nil, fmt.Errorf("postgres: enqueue: %w", err)
	}
	if len(valid) == 0 {
		return nil, nil
	}
	eventIDs := make([]string, len(valid))
	for i := range valid {
		eventIDs[i] = valid[i].EventID
	}
	written, err := e.tx.insert(ctx, e.store.queries, e.store.lockKeys(messages, valid), valid)
	if err == nil && written < int64(len(valid)) {
		err = e.checkExisting(ctx, valid, eventIDs)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: enqueue: %w", e.store.explainEnqueue(err))
	}
	return eventIDs, nil
}

func (s *Store) explainEnqueue(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", core.ErrNoTransaction, err)
	}
	return s.explain(err)
}

// checkExisting compares the messages with the rows that bear their ids, as some of them were there before. A row that
// is gone meanwhile was published and deleted.
func (e *enqueuer) checkExisting(ctx context.Context, messages []core.Message, eventIDs []string) error {
	found, err := e.tx.existing(ctx, e.store.queries, eventIDs)
	if err != nil {
		return err
	}
	stored := make(map[string]core.Message, len(found))
	for _, m := range found {
		stored[m.EventID] = m
	}
	for i := range messages {
		m := &messages[i]
		was, there := stored[m.EventID]
		if there && (m.Topic != was.Topic || m.AggregateType != was.AggregateType || m.AggregateID != was.AggregateID ||
			m.EventType != was.EventType) {
			return &core.EventConflictError{EventID: m.EventID}
		}
	}
	return nil
}
