package postgres

import (
	"context"
	"fmt"

	"github.com/go-outbox/outbox/core"
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
