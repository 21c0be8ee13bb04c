package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// EnqueueCopy writes many messages by COPY, the fastest way in: worth it from some hundred messages on. It is for fresh
// events only: an event id that is there already is an error that names it, and ends the transaction, as any error of COPY
// does (in a partitioned outbox it is written a second time). What can be checked is checked before anything is sent, as
// in Enqueue.
func (s *Store) EnqueueCopy(ctx context.Context, tx pgx.Tx, messages ...core.Message) ([]string, error) {
	if tx == nil {
		return noTransaction{}.Enqueue(ctx)
	}
	valid, err := core.ValidateAll(messages, s.checkPayload)
	if err != nil {
		return nil, fmt.Errorf("postgres: copy: %w", err)
	}
	rows := newMessageArrays(valid)
	if keys := s.lockKeys(nil, valid); len(keys) > 0 {
		if _, err := tx.Exec(ctx, s.queries.lockKeys, keys); err != nil {
			return nil, fmt.Errorf("postgres: copy: %w", s.explainEnqueue(err))
		}
	}
	columns := []string{"event_id", "topic", "aggregate_type", "aggregate_id", "event_type", "payload", "headers"}
	source := pgx.CopyFromSlice(len(valid), func(i int) ([]any, error) {
		var payload any
		if rows.payloads[i] != nil {
			payload = rows.payloads[i]
		}
		return []any{
			rows.eventIDs[i], rows.topics[i], rows.types[i], rows.ids[i], rows.eventTypes[i], payload, rows.headers[i],
		}, nil
	})
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{s.cfg.Schema, s.cfg.Table}, columns, source); err != nil {
		return nil, fmt.Errorf("postgres: copy: %w", s.explainEnqueue(err))
	}
	return rows.eventIDs, nil
}
