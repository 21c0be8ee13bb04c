package storetest_test

import (
	"context"
	"testing"

	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
)

func fingerprintMutants() []mutant {
	return []mutant{
		{"remembers the last fingerprint", []string{
			"Fingerprint/TheFirstIsRemembered", "Fingerprint/CallersAtTheSameTimeAgree",
		}, func(testing.TB) sabotage {
			return sabotage{fingerprint: func(ctx context.Context, s *memstore.Store, broker, name, given string) (string, error) {
				return given, s.AcceptFingerprint(ctx, broker, name, given)
			}}
		}},
		{"keeps one fingerprint for all brokers", []string{"Fingerprint/TheFirstIsRemembered"}, func(testing.TB) sabotage {
			return sabotage{fingerprint: func(ctx context.Context, s *memstore.Store, _, name, given string) (string, error) {
				return s.Fingerprint(ctx, "", name, given)
			}}
		}},
		{"returns what it was given before it remembers", []string{"Fingerprint/AcceptedReplacesIt"}, func(testing.TB) sabotage {
			return sabotage{fingerprint: func(ctx context.Context, s *memstore.Store, broker, name, given string) (string, error) {
				_, err := s.Fingerprint(ctx, broker, name, given)
				return given, err
			}}
		}},
		{"lists the destinations of all brokers as one's", []string{"Fingerprint/AllAreListed"}, func(testing.TB) sabotage {
			return sabotage{fingerprints: func(all map[ordering.Outlet]string) map[ordering.Outlet]string {
				mixed := map[ordering.Outlet]string{}
				for o, fingerprint := range all {
					mixed[ordering.Outlet{Destination: o.Destination}] = fingerprint
				}
				return mixed
			}}
		}},
	}
}
