package adapters

import (
	"context"
	"log/slog"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// Broker is a broker's URL, understood and found valid; nothing is opened yet.
type Broker struct {
	// Open opens the broker. It does not wait until the broker can be reached.
	Open func(context.Context, *slog.Logger) (core.Broker, error)
}

// ParseBroker reads a broker's URL. Its error names all faults and no secret.
func ParseBroker(raw string) (Broker, error) {
	scheme, err := schemeOf(raw, brokerForms)
	if err != nil {
		return Broker{}, err
	}
	switch scheme {
	case "kafka":
		cfg, err := kafka.ParseURL(raw)
		if err != nil {
			return Broker{}, err
		}
		return Broker{Open: func(ctx context.Context, log *slog.Logger) (core.Broker, error) {
			cfg := cfg
			cfg.Logger = log
			return kafka.Open(ctx, cfg)
		}}, nil
	case "memory":
		return Broker{Open: func(_ context.Context, log *slog.Logger) (core.Broker, error) {
			log.Warn("the broker is in memory: what is published is gone when this process ends")
			return membroker.New(membroker.Config{}), nil
		}}, nil
	default:
		return Broker{}, unknownScheme(scheme, brokerForms)
	}
}
