package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// locked are the lanes that a settle holds, and the xid it has since.
type locked struct {
	lanes map[int]bool
	xid   int64
}

func (l *locked) read(rows pgx.Rows) error {
	l.lanes = map[int]bool{}
	var lane int
	_, err := pgx.ForEachRow(rows, []any{&lane, &l.xid}, func() error {
		l.lanes[lane] = true
		return nil
	})
	return err
}

// countIDs reads an array of ids.
func countIDs(into map[int64]int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var ids []int64
		if err := one(&ids)(rows); err != nil {
			return err
		}
		for _, id := range ids {
			into[id]++
		}
		return nil
	}
}

// result compares what was asked for with what was written.
func (l *locked) result(req core.Settlement, settled map[int64]int) core.Settled {
	var reply core.Settled
	for _, lease := range req.Leases {
		if !l.lanes[lease.Lane] {
			reply.Refused = append(reply.Refused, lease.Lane)
		}
	}
	for i := range req.Items {
		r := req.Items[i].Record
		if l.lanes[r.Lane] && settled[r.ID] == 0 {
			reply.Missed = append(reply.Missed, r)
		}
	}
	return reply
}
