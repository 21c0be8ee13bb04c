package config

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/store/memstore"
	"github.com/go-outbox/outbox/store/postgres"
	"github.com/go-outbox/outbox/store/sqlite"
)

// everything is a registry of all adapters.
func everything() Registry {
	return Registry{
		Stores: map[string]StoreFactory{
			"postgres": Store(postgres.Open, func(url string) (postgres.Config, error) { return postgres.Config{DSN: url}, nil }),
			"sqlite":   Store(sqlite.Open, sqlite.ParseURL),
			"memory": Store(func(_ context.Context, c memstore.Config) (*memstore.Store, error) {
				return memstore.New(c)
			}, nil),
		},
		Brokers: map[string]BrokerFactory{
			"kafka":    Broker(kafka.Open, kafka.ParseURL, OrderingRecordKey, OrderingNone),
			"rabbitmq": Broker(rabbitmq.Open, rabbitmq.ParseURL, OrderingShards, OrderingNone),
			"sqs":      Broker(sqs.Open, sqs.ParseURL, OrderingMessageGroup, OrderingNone),
			"memory": Broker(func(_ context.Context, c membroker.Config) (*membroker.Broker, error) {
				return membroker.New(c), nil
			}, nil, allOrderings()...),
		},
		Schemes: map[string]string{"postgresql": "postgres", "amqps": "rabbitmq"},
	}
}

// files are files in memory.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	text, ok := f[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

// load loads one file as outbox.yaml.
func load(text string, environ ...string) (*Config, error) {
	return Load(context.Background(), everything(), Input{
		Files: []string{"outbox.yaml"}, Environ: environ, Partial: true, ReadFile: files{"outbox.yaml": text}.read,
	})
}

func mustLoad(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	c, err := load(text, environ...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lines are the faults of an error, one a line.
func lines(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var all []string
	for _, one := range flatten(err) {
		var fault *Fault
		if !errors.As(one, &fault) {
			t.Errorf("%v is a %T, not a *Fault", one, one)
		}
		all = append(all, one.Error())
	}
	return all
}
