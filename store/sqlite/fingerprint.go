package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
