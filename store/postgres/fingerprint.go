package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.FingerprintKeeper = (*Store)(nil)

// Fingerprint is described at [core.FingerprintKeeper].
func (s *Store) Fingerprint(ctx context.Context, broker, destination, fingerprint string) (string, error) {
	var remembered string
	err := s.transact(ctx,
		step{sql: s.queries.remember, args: []any{broker, destination, fingerprint}},
		step{sql: s.queries.fingerprint, args: []any{broker, destination}, read: one(&remembered)})
	if err != nil {
		return "", fmt.Errorf("postgres: fingerprint of %q: %w", destination, err)
	}
	return remembered, nil
}

// AcceptFingerprint is described at [core.FingerprintKeeper].
func (s *Store) AcceptFingerprint(ctx context.Context, broker, destination, fingerprint string) error {
	if err := s.transact(ctx, step{sql: s.queries.accept, args: []any{broker, destination, fingerprint}}); err != nil {
		return fmt.Errorf("postgres: accept the fingerprint of %q: %w", destination, err)
	}
	return nil
}

// Fingerprints is described at [core.FingerprintKeeper].
func (s *Store) Fingerprints(ctx context.Context) (map[ordering.Outlet]string, error) {
	all := map[ordering.Outlet]string{}
	err := s.transact(ctx, step{sql: s.queries.fingerprints, read: func(rows pgx.Rows) error {
		for rows.Next() {
			var outlet ordering.Outlet
			var fingerprint string
			if err := rows.Scan(&outlet.Broker, &outlet.Destination, &fingerprint); err != nil {
				return err
			}
			all[outlet] = fingerprint
		}
		return rows.Err()
	}})
	if err != nil {
		return nil, fmt.Errorf("postgres: fingerprints: %w", err)
	}
	return all, nil
}
