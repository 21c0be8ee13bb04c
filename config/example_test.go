package config_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
	"github.com/go-outbox/outbox/store/sqlite"
)

// registry links the adapters that this program may be configured to use.
func registry() config.Registry {
	return config.Registry{
		Stores: map[string]config.StoreFactory{
			"sqlite": config.Store(sqlite.Open, sqlite.ParseURL),
		},
		Brokers: map[string]config.BrokerFactory{
			"kafka": config.Broker(kafka.Open, kafka.ParseURL, config.OrderingRecordKey),
			"sqs":   config.Broker(sqs.Open, sqs.ParseURL, config.OrderingMessageGroup, config.OrderingNone),
		},
	}
}

func ExampleLoad() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "outbox.yaml")
	text := `
store: "sqlite:${SHOP_DIR}/shop.db"
broker:
  type: kafka
  kafka:
    brokers: ["127.0.0.1:9092"]
    sasl: {mechanism: plain, username: shop, password: "${KAFKA_PASSWORD}"}
dispatcher:
  poll_max: 500ms
topics:
  order: shop.orders
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	loaded, err := config.Load(ctx, registry(), config.Input{
		Files:   []string{file},
		Environ: []string{"SHOP_DIR=" + dir, "KAFKA_PASSWORD=hunter2", "OUTBOX_DISPATCHER_FETCH_SIZE=200"}, // or os.Environ()
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	parts, err := loaded.Open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = parts.Close(ctx) }()
	dispatcher, err := core.NewDispatcher(parts.Store, parts.Broker, parts.Dispatcher)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%T, %T, ready: %t\n", parts.Store, parts.Broker, dispatcher.Health().Ready)
	fmt.Println(parts.Dispatcher.FetchSize, parts.Dispatcher.PollMax)
	// Output:
	// *sqlite.Store, *kafka.Broker, ready: false
	// 200 500ms
}

func ExampleLoad_faults() {
	ctx := context.Background()
	text := `store: sqlite:shop.db
broker:
  type: kafka
  kafka:
    broker: ["127.0.0.1:9092"]
    dial_timeout: 5
`
	_, err := config.Load(ctx, registry(), config.Input{
		Files:    []string{"outbox.yaml"},
		ReadFile: func(string) ([]byte, error) { return []byte(text), nil },
		Environ:  []string{"OUTBOX_BROKER_KAFKA_CLIENTID=shop"},
	})
	fmt.Println(err)
	// Output:
	// outbox.yaml:5:5 unknown key "broker.kafka.broker"; did you mean "brokers"?
	// outbox.yaml:6:19 broker.kafka.dial_timeout: "5" has no unit; write 5ms, 5s or 5m
	// OUTBOX_BROKER_KAFKA_CLIENTID names no key; did you mean OUTBOX_BROKER_KAFKA_CLIENT_ID?
}

// A webhook that is configured beside the dispatcher is its observer. Run is called in a goroutine that ends after it.
func ExampleConfig_Notify() {
	loaded, err := config.Load(context.Background(), registry(), config.Input{
		Environ: []string{"OUTBOX_NOTIFY_URL=https://hooks.slack.com/services/T000", "OUTBOX_NOTIFY_FORMAT=slack", "OUTBOX_DISPATCHER_NAME=shop"},
		Partial: true, // only this is looked at
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if webhook, wanted := loaded.Notify(slog.Default()); wanted {
		hook, err := notify.New(webhook)
		fmt.Println(webhook.URL, webhook.Format, webhook.Name, hook != nil, err)
	}
	// Output: https://hooks.slack.com/*** slack shop true <nil>
}

// A factory of one's own, for an adapter that is not in this module.
func ExampleBrokerFactory() {
	ctx := context.Background()
	type settings struct {
		MaxBatch int
	}
	own := func(_ context.Context, decode func(any) error) (core.Broker, error) {
		var s settings
		if err := decode(&s); err != nil {
			return nil, err
		}
		return membroker.New(membroker.Config{MaxBatch: s.MaxBatch}), nil
	}
	loaded, err := config.Load(
		ctx, config.Registry{Brokers: map[string]config.BrokerFactory{"own": own}},
		config.Input{
			Environ: []string{"OUTBOX_BROKER_TYPE=own", "OUTBOX_BROKER_OWN_MAX_BATCH=7"},
			Partial: true, // the store is opened elsewhere
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker, err := loaded.OpenBroker(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(broker.Capabilities().MaxBatch)
	// Output: 7
}
