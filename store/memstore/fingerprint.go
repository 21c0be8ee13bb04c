package memstore

import (
	"context"

	"github.com/go-outbox/outbox/core"
)

var _ core.FingerprintKeeper = (*Store)(nil)

// destination names a destination of a broker.
type destination struct{ broker, name string }

// Fingerprint implements [core.FingerprintKeeper].
func (s *Store) Fingerprint(ctx context.Context, broker, name, fingerprint string) (remembered string, err error) {
	err = s.call(ctx, Point{Op: OpFingerprint}, func() error {
		t, d := s.table, destination{broker, name}
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, known := t.fingerprints[d]; !known {
			t.fingerprints[d] = fingerprint
		}
		remembered = t.fingerprints[d]
		return nil
	})
	return remembered, err
}

// AcceptFingerprint implements [core.FingerprintKeeper].
func (s *Store) AcceptFingerprint(ctx context.Context, broker, name, fingerprint string) error {
	return s.call(ctx, Point{Op: OpFingerprint}, func() error {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		s.table.fingerprints[destination{broker, name}] = fingerprint
		return nil
	})
}
