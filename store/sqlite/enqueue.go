package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-outbox/outbox/core"
)

// insertRows is how many rows go into one INSERT: more is hardly faster, and the statement's text stays small.
const insertRows = 50

// In returns an Enqueuer that writes in tx, which may come from any connection to the same file. With a nil tx every
// Enqueue returns core.ErrNoTransaction. It is not safe for concurrent use. A tx that is not from [Store].DB must have
// begun immediate.
func (s *Store) In(tx *sql.Tx) core.Enqueuer { return &enqueuer{store: s, tx: tx} }

// InTx runs fn in a transaction of [Store].DB with an Enqueuer for it, commits, and wakes the dispatcher. An error or
// a panic of fn rolls everything back; the error is returned as it is. Use tx and nothing else of the Store within fn.
func (s *Store) InTx(ctx context.Context, fn func(tx *sql.Tx, box core.Enqueuer) error) error {
	if s.closed.Load() {
		return fmt.Errorf("sqlite: transaction: %w", core.ErrClosed)
	}
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlite: begin: %w", s.explain(err))
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(tx, s.In(tx)); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlite: commit: %w", s.explain(err))
	}
	s.Nudge()
	return nil
}

// enqueuer writes messages in one transaction.
type enqueuer struct {
	store *Store
	tx    *sql.Tx
}

// Enqueue is described at [core.Enqueuer]. After an *[core.EventConflictError] the other messages of the call are
// written: roll the transaction back.
func (e *enqueuer) Enqueue(ctx context.Context, messages ...core.Message) ([]string, error) {
	if e.tx == nil {
		return nil, fmt.Errorf("sqlite: enqueue: %w: the *sql.Tx is nil; begin one with Store.DB().BeginTx "+
			"or use Store.InTx, so that event and data commit together", core.ErrNoTransaction)
	}
	valid, err := core.ValidateAll(messages, e.store.checkPayload)
	if err != nil {
		return nil, fmt.Errorf("sqlite: enqueue: %w", err)
	}
	ids := make([]string, len(valid))
	for i := range valid {
		ids[i] = valid[i].EventID
	}
	for len(valid) > 0 {
		n := min(len(valid), insertRows)
		if err := e.insert(ctx, valid[:n]); err != nil {
			return nil, fmt.Errorf("sqlite: enqueue: %w", e.store.explain(err))
		}
		valid = valid[n:]
	}
	return ids, nil
}

// checkPayload is the table's own rule for a message.
func (s *Store) checkPayload(m *core.Message) error {
	if s.cfg.Payload == Bytes || m.Payload == nil || json.Valid(m.Payload) {
		return nil
	}
	return &core.InvalidMessageError{
		EventID: m.EventID, Field: "Payload",
		Reason: "is not valid JSON; send JSON or nil, or configure the table with Payload: sqlite.Bytes",
	}
}

func (e *enqueuer) insert(ctx context.Context, messages []core.Message) error {
	rows := insertRowSQL + strings.Repeat(", "+insertRowSQL, len(messages)-1)
	query := e.store.queries.insert + rows + onConflictSQL //nolint:gosec // names and placeholders, no values
	args := make([]any, 0, 7*len(messages))
	for i := range messages {
		m := &messages[i]
		args = append(args, m.EventID, orNull(m.Topic), m.AggregateType, m.AggregateID, m.EventType,
			e.store.payloadValue(m.Payload), headersValue(m.Headers))
	}
	result, err := e.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	written, err := result.RowsAffected()
	if err != nil || written == int64(len(messages)) {
		return err
	}
	return e.checkExisting(ctx, messages)
}

// checkExisting compares the messages with the rows that bear their ids, as some of them were there before.
func (e *enqueuer) checkExisting(ctx context.Context, messages []core.Message) error {
	ids := make([]string, len(messages))
	for i := range messages {
		ids[i] = messages[i].EventID
	}
	rows, err := e.tx.QueryContext(ctx, e.store.queries.existing, jsonArray(ids))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	stored := make(map[string]core.Message, len(messages))
	for rows.Next() {
		var m core.Message
		if err := rows.Scan(&m.EventID, &m.Topic, &m.AggregateType, &m.AggregateID, &m.EventType); err != nil {
			return err
		}
		stored[m.EventID] = m
	}
	for i := range messages {
		m, was := &messages[i], stored[messages[i].EventID]
		if m.Topic != was.Topic || m.AggregateType != was.AggregateType || m.AggregateID != was.AggregateID ||
			m.EventType != was.EventType {
			return &core.EventConflictError{EventID: m.EventID}
		}
	}
	return rows.Err()
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// payloadValue is a payload as the driver stores it. A table of JSON holds TEXT, so that SQL can look into it.
func (s *Store) payloadValue(payload []byte) any {
	switch {
	case payload == nil:
		return nil
	case s.cfg.Payload == JSON:
		return string(payload)
	case len(payload) == 0:
		return []byte{}
	default:
		return payload
	}
}

func headersValue(headers map[string]string) any {
	if len(headers) == 0 {
		return nil
	}
	return jsonText(headers)
}
