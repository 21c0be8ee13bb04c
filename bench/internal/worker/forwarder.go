package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/ordering"
)

// forwarderTopic is the topic, and so the table, of the forwarder.
const forwarderTopic = "forwarder"

// keyField is where our messages have their aggregate, for the forwarder's record key.
const keyField = "key"

func forwarderTable(schema string) string { return pgx.Identifier{schema, forwarderTopic}.Sanitize() }

// subscriber is Watermill's for its default schema or for its queue schema, with their default settings.
func subscriber(pool *pgxpool.Pool, kind Kind, schema string) (*sql.Subscriber, error) {
	table := func(string) string { return forwarderTable(schema) }
	offsets := func(string) string { return pgx.Identifier{schema, "forwarder_offsets"}.Sanitize() }
	config := sql.SubscriberConfig{
		SchemaAdapter:    sql.DefaultPostgreSQLSchema{GenerateMessagesTableName: table},
		OffsetsAdapter:   sql.DefaultPostgreSQLOffsetsAdapter{GenerateMessagesOffsetsTableName: offsets},
		InitializeSchema: true,
	}
	if kind == Queue {
		config.SchemaAdapter = sql.PostgreSQLQueueSchema{GenerateMessagesTableName: table}
		config.OffsetsAdapter = sql.PostgreSQLQueueOffsetsAdapter{GenerateMessagesTableName: table}
	}
	return sql.NewSubscriber(sql.BeginnerFromPgx(pool), config, watermill.NopLogger{})
}

// CreateForwarder makes and fills the table of Watermill's forwarder, with the envelopes that its publisher writes.
func CreateForwarder(
	ctx context.Context, pool *pgxpool.Pool, kind Kind, schema, topic string, m load.Mix, rows int,
) error {
	s, err := subscriber(pool, kind, schema)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := s.SubscribeInitialize(forwarderTopic); err != nil {
		return err
	}
	columns, values := "uuid, payload, metadata", ""
	if kind != Queue {
		columns, values = columns+", transaction_id", ", pg_current_xact_id()"
	}
	insert := fmt.Sprintf(`INSERT INTO %s (%s) SELECT gen_random_uuid(), json_build_object(
		'destination_topic', $3::text, 'uuid', gen_random_uuid(),
		'payload', translate(encode(convert_to((%s)::text, 'UTF8'), 'base64'), E'\n', ''),
		'metadata', json_build_object('%s', %s)), '{}'%s FROM`,
		forwarderTable(schema), columns, m.BodySQL(), keyField, m.KeySQL(), values)
	if err := load.Insert(ctx, pool, insert, 1, rows, topic); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "VACUUM ANALYZE "+forwarderTable(schema))
	return err
}

// openForwarder is Watermill's forwarder; it is done when everything was published.
func openForwarder(ctx context.Context, job Job, m *meter) (*task, error) {
	pool, err := pgxpool.New(ctx, job.Store)
	if err != nil {
		return nil, err
	}
	s, err := subscriber(pool, job.Kind, job.Schema)
	if err != nil {
		return nil, err
	}
	publisher, err := watermillPublisher(job.Broker, job.Kind)
	if err != nil {
		return nil, err
	}
	counted := &countedPublisher{Publisher: publisher, m: m, rows: job.Rows, all: make(chan struct{})}
	f, err := forwarder.NewForwarder(s, counted, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic})
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		select {
		case <-counted.all:
			stop()
			return <-ended
		case err := <-ended:
			stop()
			return err
		}
	}
	return &task{run: run, close: func() { _ = f.Close(); pool.Close() }}, nil
}

// watermillPublisher is Watermill's own for a broker, with its defaults, but RabbitMQ's waits for confirms. By default
// that opens a channel for each message, which a pool avoids.
func watermillPublisher(url string, kind Kind) (message.Publisher, error) {
	if strings.HasPrefix(url, "kafka:") {
		return kafka.NewPublisher(kafka.PublisherConfig{
			Brokers: target.Seeds(url),
			Marshaler: kafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) {
				return m.Metadata.Get(keyField), nil
			}),
		}, watermill.NopLogger{})
	}
	config := amqp.NewDurablePubSubConfig(url, nil)
	config.Exchange.Type = "direct"
	config.Publish.GenerateRoutingKey = func(string) string { return ordering.Shards{}.Token(0) } // one quorum queue
	config.Publish.ConfirmDelivery = true
	if kind == Pooled {
		config.Publish.ChannelPoolSize = 4
	}
	return amqp.NewPublisher(config, watermill.NopLogger{})
}

// countedPublisher notes when the last message was acknowledged.
type countedPublisher struct {
	message.Publisher
	m    *meter
	rows int
	once sync.Once
	all  chan struct{}
}

func (p *countedPublisher) Publish(topic string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	if p.m.add(len(messages)) >= p.rows {
		p.once.Do(func() { p.m.finish(); close(p.all) })
	}
	return nil
}
