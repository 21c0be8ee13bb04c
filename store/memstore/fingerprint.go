package memstore

import (
	"context"
	"maps"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.FingerprintKeeper = (*Store)(nil)

// Fingerprint implements [core.FingerprintKeeper].
func (s *Store) Fingerprint(ctx context.Context, broker, name, fingerprint string) (remembered string, err error) {
	err = s.call(ctx, Point{Op: OpFingerprint}, func() error {
		t, d := s.table, ordering.Outlet{Broker: broker, Destination: name}
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
		s.table.fingerprints[ordering.Outlet{Broker: broker, Destination: name}] = fingerprint
		return nil
	})
}

// Fingerprints implements [core.FingerprintKeeper].
func (s *Store) Fingerprints(ctx context.Context) (all map[ordering.Outlet]string, err error) {
	err = s.call(ctx, Point{Op: OpFingerprint}, func() error {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		all = maps.Clone(s.table.fingerprints)
		return nil
	})
	return all, err
}
