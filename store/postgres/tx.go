package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// pgxTx is a transaction of pgx.
type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) insert(ctx context.Context, q queries, keys []int64, messages []core.Message) (int64, error) {
	statement, args := q.insertion(messages)
	if len(keys) == 0 {
		tag, err := t.tx.Exec(ctx, statement, args...)
		return tag.RowsAffected(), err
	}
	batch := &pgx.Batch{}
	batch.Queue(q.lockKeys, keys)
	batch.Queue(statement, args...)
	results := t.tx.SendBatch(ctx, batch)
	_, lockErr := results.Exec()
	tag, err := results.Exec()
	if lockErr != nil {
		err = lockErr
	}
	return tag.RowsAffected(), errors.Join(err, results.Close())
}

func (t pgxTx) existing(ctx context.Context, q queries, eventIDs []string) ([]core.Message, error) {
	rows, err := t.tx.Query(ctx, q.existing, eventIDs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m core.Message, err error) {
		return m, row.Scan(&m.EventID, &m.Topic, &m.AggregateType, &m.AggregateID, &m.EventType)
	})
}

// sqlTx is a transaction of database/sql. Arrays go as text, which every driver sends as it is.
type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) insert(ctx context.Context, q queries, keys []int64, messages []core.Message) (int64, error) {
	if len(keys) > 0 {
		if _, err := t.tx.ExecContext(ctx, q.lockKeys, arrayOfInts(keys)); err != nil {
			return 0, err
		}
	}
	rows := newMessageArrays(messages)
	payloads := arrayOf(rows.payloadTexts())
	if q.bytes {
		payloads = arrayOfBytes(rows.payloads)
	}
	result, err := t.tx.ExecContext(ctx, q.insert, arrayOfTexts(rows.eventIDs), arrayOf(rows.topics),
		arrayOfTexts(rows.types), arrayOfTexts(rows.ids), arrayOfTexts(rows.eventTypes), payloads, arrayOf(rows.headers))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t sqlTx) existing(ctx context.Context, q queries, eventIDs []string) (found []core.Message, err error) {
	rows, err := t.tx.QueryContext(ctx, q.existing, arrayOfTexts(eventIDs))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var m core.Message
		if err := rows.Scan(&m.EventID, &m.Topic, &m.AggregateType, &m.AggregateID, &m.EventType); err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	return found, rows.Err()
}
