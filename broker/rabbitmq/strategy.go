package rabbitmq

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.Adopter = (*Broker)(nil)

// strategies are the ordering strategies by topic: the configured one, until a topic has gone over to another.
type strategies struct {
	configured ordering.Strategy

	mu      sync.RWMutex
	adopted map[string]ordering.Shards
}

func (s *strategies) of(topic string) ordering.Strategy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if later, ok := s.adopted[topic]; ok {
		return later
	}
	return s.configured
}

// adopt makes the topic go over, if that is a later generation than the one it has.
func (s *strategies) adopt(topic string, later ordering.Shards) bool {
	now, ok := s.of(topic).(ordering.Shards)
	if !ok || later.Generation <= now.WithDefaults().Generation {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adopted[topic].Generation < later.Generation {
		s.adopted[topic] = later
	}
	return true
}

// Fingerprint is that of the strategy by which the topic is published, which with [ordering.Shards] names the number
// of shards and the generation. It asks nobody.
func (b *Broker) Fingerprint(_ context.Context, _, destination string) (string, error) {
	return b.strategies.of(destination).Fingerprint(), nil
}

// Adopt makes the topic use a later generation of [ordering.Shards] from now on, instead of the configured one; it
// returns false for every other strategy. It asks nobody. Declare, Verify and Fence stay with what is configured.
func (b *Broker) Adopt(_ context.Context, _, destination, fingerprint string) (bool, error) {
	later, ok := parseShards(fingerprint)
	return ok && b.strategies.adopt(destination, later), nil
}

// parseShards reads what ordering.Shards.Fingerprint writes.
func parseShards(fingerprint string) (ordering.Shards, bool) {
	var s ordering.Shards
	_, err := fmt.Sscanf(fingerprint, "shards/v1:%d:g%d", &s.Count, &s.Generation)
	return s, err == nil && s.Validate() == nil && s.Fingerprint() == fingerprint
}
