package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-outbox/outbox/core"
)

// Settle is described at [core.Store].
func (s *Store) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	var settled core.Settled
	err := s.write(ctx, func(tx *sql.Tx) (err error) {
		settled, err = s.settle(ctx, tx, req)
		return err
	})
	if err != nil {
		return core.Settled{}, fmt.Errorf("sqlite: settle: %w", err)
	}
	return settled, nil
}

// settle needs no lock of the lane: the transaction has begun immediate, so nobody else writes anything.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, req core.Settlement) (settled core.Settled, err error) {
	held := make(map[int]bool, len(req.Leases))
	for _, lease := range req.Leases {
		var owned int
		row := tx.QueryRowContext(ctx, s.queries.fence, lease.Lane, req.Member, lease.Epoch)
		if err := row.Scan(&owned); err != nil {
			return settled, err
		}
		held[lease.Lane] = owned > 0
		if owned == 0 {
			settled.Refused = append(settled.Refused, lease.Lane)
		}
	}
	byStatus := make(map[core.Status][]core.SettleItem)
	for _, item := range req.Items {
		if held[item.Record.Lane] {
			byStatus[item.Status] = append(byStatus[item.Status], item)
		}
	}
	for status, items := range byStatus {
		missed, err := s.settleStatus(ctx, tx, status, items)
		if err != nil {
			return settled, err
		}
		settled.Missed = append(settled.Missed, missed...)
	}
	return settled, nil
}

// settleStatus writes items of one status with one statement and returns the records it found no row for.
func (s *Store) settleStatus(ctx context.Context, tx *sql.Tx, status core.Status, items []core.SettleItem,
) (missed []*core.Record, err error) {
	var query string
	switch status {
	case core.StatusPublished:
		query = s.queries.published
	case core.StatusFailed:
		query = s.queries.failed
	case core.StatusParked:
		query = s.queries.parked
	case core.StatusBlocked:
		query = s.queries.blocked
	default:
		return nil, fmt.Errorf("event %s: status %d is none of published, failed, parked, blocked",
			items[0].Record.EventID, status)
	}
	rows := make([][]any, len(items))
	for i, item := range items {
		r := item.Record
		rows[i] = []any{r.ID, r.EventID, r.Replay}
		if status != core.StatusPublished {
			rows[i] = append(rows[i], item.Attempts, millis(item.RetryIn), item.Reason)
		}
	}
	written, err := queryAll(ctx, tx, scanID, query, jsonArray(rows))
	if err != nil || len(written) == len(items) {
		return nil, err
	}
	found := make(map[int64]bool, len(written))
	for _, id := range written {
		found[id] = true
	}
	for _, item := range items {
		if !found[item.Record.ID] {
			missed = append(missed, item.Record)
		}
	}
	return missed, nil
}

func scanID(rows *sql.Rows) (id int64, err error) {
	err = rows.Scan(&id)
	return id, err
}
