package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Lease is described at [core.Store]. The table has one lane, 0.
func (s *Store) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	var leases core.Leases
	err := s.write(ctx, func(tx *sql.Tx) error {
		change := s.renew
		if req.Leave {
			change = s.leave
		}
		if err := change(ctx, tx, req); err != nil {
			return err
		}
		var err error
		leases, err = s.readLeases(ctx, tx, req.Member)
		return err
	})
	if err != nil {
		return core.Leases{}, fmt.Errorf("sqlite: lease: %w", err)
	}
	return leases, nil
}

// renew skips what there is nothing to do for: others wait for the lock meanwhile.
func (s *Store) renew(ctx context.Context, tx *sql.Tx, req core.LeaseRequest) error {
	ttl := millis(req.TTL)
	statements := []statement{
		{s.queries.join, []any{req.Member, ttl}},
		{s.queries.dropMembers, nil},
	}
	if len(req.Release) > 0 {
		released := make([][2]int64, len(req.Release))
		for i, lease := range req.Release {
			released[i] = [2]int64{int64(lease.Lane), lease.Epoch}
		}
		statements = append(statements, statement{s.queries.giveBack, []any{req.Member, jsonArray(released)}})
	}
	statements = append(statements, statement{s.queries.extend, []any{req.Member, ttl}})
	if len(req.Want) > 0 {
		statements = append(statements, statement{s.queries.take, []any{req.Member, ttl, jsonArray(req.Want)}})
	}
	return execAll(ctx, tx, statements...)
}

func (s *Store) leave(ctx context.Context, tx *sql.Tx, req core.LeaseRequest) error {
	return execAll(ctx, tx,
		statement{s.queries.leave, []any{req.Member}},
		statement{s.queries.leaveLanes, []any{req.Member}},
	)
}

func (s *Store) readLeases(ctx context.Context, tx *sql.Tx, member string) (leases core.Leases, err error) {
	var members, held []byte
	var next int64
	row := tx.QueryRowContext(ctx, s.queries.leases, member)
	if err := row.Scan(&leases.Lanes, &members, &held, &next); err != nil {
		return leases, err
	}
	leases.NextExpiry = time.Duration(next) * time.Millisecond
	return leases, errors.Join(json.Unmarshal(members, &leases.Members), json.Unmarshal(held, &leases.Held))
}

// millis is d in milliseconds, rounded up: nothing becomes due early.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 1
}
