package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
	"github.com/go-outbox/outbox/store/sqlite"
)

// openOutbox is our dispatcher with default settings, as far as the job does not say otherwise.
func openOutbox(ctx context.Context, job Job, m *meter) (*task, error) {
	store, closeStore, err := openStore(ctx, job, m)
	if err != nil {
		return nil, err
	}
	broker, err := openBroker(ctx, job.Broker)
	if err != nil {
		closeStore()
		return nil, err
	}
	t := &task{close: func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = broker.Close(ctx)
		closeStore()
	}}
	measured, log := broker, logger()
	if job.Poison != "" {
		measured, log = poisoned{broker, job.Poison}, slog.New(slog.DiscardHandler)
	}
	d, err := core.NewDispatcher(store, measured, core.Config{
		FetchSize: job.FetchSize, PublishSize: job.PublishSize, MaxInFlight: 5 * max(job.FetchSize, core.DefaultFetchSize),
		Logger: log, Observer: m,
	})
	if err != nil {
		t.close()
		return nil, err
	}
	t.run = d.Run
	if job.Rows > 0 {
		t.run = d.RunOnce
	}
	return t, nil
}

// logger tells what disturbs a run.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func openStore(ctx context.Context, job Job, m *meter) (core.Store, func(), error) {
	if strings.HasPrefix(job.Store, "sqlite:") {
		cfg, err := sqlite.ParseURL(job.Store)
		if err != nil {
			return nil, nil, err
		}
		cfg.Logger = logger()
		s, err := sqlite.Open(ctx, cfg)
		return s, func() { _ = s.Close() }, err
	}
	cfg := postgres.Config{
		DSN: job.Store, Schema: job.Schema, AfterPublish: postgres.AfterPublish(job.After), Logger: logger(),
	}
	if !job.Count {
		s, err := postgres.Open(ctx, cfg)
		return s, func() { _ = s.Close() }, err
	}
	pool, err := tracedPool(ctx, job.Store, m)
	if err != nil {
		return nil, nil, err
	}
	s, err := postgres.New(pool, cfg)
	return s, func() { _ = s.Close(); pool.Close() }, err
}

func tracedPool(ctx context.Context, url string, m *meter) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Tracer = m
	return pgxpool.NewWithConfig(ctx, config)
}

func openBroker(ctx context.Context, url string) (core.Broker, error) {
	scheme, _, _ := strings.Cut(url, ":")
	switch scheme {
	case "kafka":
		config, err := kafka.ParseURL(url)
		if err != nil {
			return nil, err
		}
		config.Logger = logger()
		return kafka.Open(ctx, config)
	case "sqs":
		config, err := sqs.ParseURL(url)
		if err != nil {
			return nil, err
		}
		config.Logger = logger()
		return sqs.Open(ctx, config)
	default:
		config, err := rabbitmq.ParseURL(url)
		if err != nil {
			return nil, err
		}
		config.Logger = logger()
		return rabbitmq.Open(ctx, config)
	}
}

// poisoned is a broker that refuses every message of one event type.
type poisoned struct {
	core.Broker
	eventType string
}

var errPoison = errors.New("poison")

func (p poisoned) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	results := make([]core.Result, len(batch))
	closed := map[string]bool{}
	var good []core.Prepared
	var at []int
	for i, message := range batch {
		switch key := message.Record.AggregateID; {
		case message.Record.EventType == p.eventType:
			closed[key] = true
			results[i] = core.Result{Outcome: core.OutcomeRejected, Err: errPoison}
		case closed[key]:
			results[i] = core.Result{Outcome: core.OutcomeSkipped, Err: errPoison}
		default:
			good, at = append(good, message), append(at, i)
		}
	}
	if len(good) > 0 {
		for i, result := range p.Broker.PublishBatch(ctx, good) {
			results[at[i]] = result
		}
	}
	return results
}
