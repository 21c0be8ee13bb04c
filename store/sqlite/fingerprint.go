package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-outbox/outbox/ordering"
)

// Fingerprint is described at [core.FingerprintKeeper]. It writes only when nothing is remembered yet.
func (s *Store) Fingerprint(ctx context.Context, broker, destination, fingerprint string) (string, error) {
	var remembered string
	find := func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, s.queries.fingerprint, broker, destination).Scan(&remembered)
	}
	err := s.read(ctx, find)
	if errors.Is(err, sql.ErrNoRows) {
		err = s.write(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, s.queries.remember, broker, destination, fingerprint); err != nil {
				return err
			}
			return find(tx)
		})
	}
	if err != nil {
		return "", fmt.Errorf("sqlite: fingerprint of %s: %w", destination, err)
	}
	return remembered, nil
}

// AcceptFingerprint is described at [core.FingerprintKeeper].
func (s *Store) AcceptFingerprint(ctx context.Context, broker, destination, fingerprint string) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s.queries.accept, broker, destination, fingerprint)
		return err
	})
	if err != nil {
		return fmt.Errorf("sqlite: accept the fingerprint of %s: %w", destination, err)
	}
	return nil
}

// Fingerprints is described at [core.FingerprintKeeper].
func (s *Store) Fingerprints(ctx context.Context) (map[ordering.Outlet]string, error) {
	all := map[ordering.Outlet]string{}
	err := s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, s.queries.fingerprints)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var outlet ordering.Outlet
			var fingerprint string
			if err := rows.Scan(&outlet.Broker, &outlet.Destination, &fingerprint); err != nil {
				return err
			}
			all[outlet] = fingerprint
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: fingerprints: %w", err)
	}
	return all, nil
}
