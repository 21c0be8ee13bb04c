package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// environment is the services, with a schema of its own that every scenario starts anew in.
type environment struct {
	options
	schema string
	pool   *pgxpool.Pool
	admin  *kadm.Client
	topics int
}

func newEnvironment(ctx context.Context, o options) (*environment, error) {
	e := &environment{options: o, schema: "outbox_bench"}
	var err error
	if e.pool, err = pgxpool.New(ctx, o.postgres); err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(e.seeds()...))
	if err != nil {
		return nil, err
	}
	e.admin = kadm.NewClient(client)
	if err := client.Ping(ctx); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return e, e.pool.Ping(ctx)
}

func (e *environment) seeds() []string {
	return strings.Split(strings.TrimPrefix(e.kafka, "kafka://"), ",")
}

func (e *environment) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = e.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+e.schema+" CASCADE")
	e.pool.Close()
	e.admin.Close()
}

// store makes an empty table and opens it.
func (e *environment) store(ctx context.Context, after postgres.AfterPublish) (*postgres.Store, error) {
	for _, sql := range []string{"DROP SCHEMA IF EXISTS %s CASCADE", "CREATE SCHEMA %s"} {
		if _, err := e.pool.Exec(ctx, fmt.Sprintf(sql, e.schema)); err != nil {
			return nil, err
		}
	}
	return e.open(ctx, after, true)
}

// open opens the table as it is.
func (e *environment) open(ctx context.Context, after postgres.AfterPublish, migrate bool) (*postgres.Store, error) {
	s, err := postgres.Open(ctx, postgres.Config{
		DSN: e.postgres, Schema: e.schema, AfterPublish: after, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil || !migrate {
		return s, err
	}
	steps := s.Migrations()
	_, err = s.Migrate(ctx, steps[len(steps)-1].Version)
	return s, err
}

// topic makes a topic and a broker for it.
func (e *environment) topic(ctx context.Context) (string, *kafka.Broker, error) {
	e.topics++
	topic := fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), e.topics)
	if _, err := e.admin.CreateTopic(ctx, 6, 1, nil, topic); err != nil {
		return "", nil, err
	}
	b, err := kafka.Open(ctx, kafka.Config{Brokers: e.seeds(), Logger: slog.New(slog.DiscardHandler)})
	return topic, b, err
}

// drop ends a topic, so that a long run does not fill the disk.
func (e *environment) drop(topic string, b *kafka.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = b.Close(ctx)
	_, _ = e.admin.DeleteTopics(ctx, topic)
}

// dispatcher is one with default settings, whose metrics go to the observer.
func (e *environment) dispatcher(s core.Store, b core.Broker, observer core.Observer) (*core.Dispatcher, error) {
	return core.NewDispatcher(s, b, core.Config{Logger: slog.New(slog.DiscardHandler), Observer: observer})
}

// mix is how events spread over aggregates.
type mix string

const (
	uniform mix = "uniform" // 1,000 aggregates
	hot     mix = "hot"     // 999, and one with a fifth of all events
)

// payloadBytes is the size of a JSON payload.
const payloadBytes = 420

// fill inserts a backlog, numbered from 1 in the payload.
func (e *environment) fill(ctx context.Context, topic string, rows int, m mix) error {
	key := "'ord_' || g % 1000"
	if m == hot {
		key = "CASE WHEN g % 5 = 0 THEN 'hot' ELSE 'ord_' || g % 999 END"
	}
	const chunk = 100_000
	for first := 1; first <= rows; first += chunk {
		_, err := e.pool.Exec(ctx, fmt.Sprintf(`INSERT INTO %s.outbox (aggregate_type, aggregate_id, event_type, topic, payload)
			SELECT 'order', %s, 'order.created', $1, jsonb_build_object('n', g, 'pad', repeat('x', %d))
			FROM generate_series($2::int, $3::int) g ORDER BY g`, e.schema, key, payloadBytes-30),
			topic, first, min(first+chunk-1, rows))
		if err != nil {
			return err
		}
	}
	_, err := e.pool.Exec(ctx, "VACUUM ANALYZE "+pgx.Identifier{e.schema, "outbox"}.Sanitize())
	return err
}

// usage is what this process has used so far.
type usage struct{ cpu time.Duration }

func used() usage {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano())}
}
