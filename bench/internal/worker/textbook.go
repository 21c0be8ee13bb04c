package worker

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/broker/sqs"
)

// TextbookTable is the outbox that most articles show.
const TextbookTable = "textbook"

// CreateTextbook makes and fills it.
func CreateTextbook(ctx context.Context, pool *pgxpool.Pool, schema string, m load.Mix, rows int) error {
	table := pgx.Identifier{schema, TextbookTable}.Sanitize()
	for _, sql := range []string{
		`CREATE TABLE ` + table + ` (id bigserial PRIMARY KEY, aggregate_id text NOT NULL, payload json NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz)`,
		`CREATE INDEX ON ` + table + ` (id) WHERE published_at IS NULL`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	insert := fmt.Sprintf(`INSERT INTO %s (aggregate_id, payload) SELECT %s, %s FROM`, table, m.KeySQL(), m.BodySQL())
	if err := load.Insert(ctx, pool, insert, 1, rows); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "VACUUM ANALYZE "+table)
	return err
}

// textbook takes up to a hundred rows in a transaction, and for each of them publishes and updates.
type textbook struct {
	pool  *pgxpool.Pool
	table string
	send  func(ctx context.Context, id int64, key string, body []byte) error
	m     *meter
}

func openTextbook(ctx context.Context, job Job, m *meter) (*task, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(target.Seeds(job.Broker)...), kgo.DefaultProduceTopic(job.Topic))
	if err != nil {
		return nil, err
	}
	return newTextbook(ctx, job, m, client.Close, func(ctx context.Context, _ int64, key string, body []byte) error {
		return client.ProduceSync(ctx, &kgo.Record{Key: []byte(key), Value: body}).FirstErr()
	})
}

// openSingle is the same for SQS: most relays send one message after the other.
func openSingle(ctx context.Context, job Job, m *meter) (*task, error) {
	config, err := sqs.ParseURL(job.Broker)
	if err != nil {
		return nil, err
	}
	client := target.SQSClient(config)
	out, err := client.GetQueueUrl(ctx, &sdk.GetQueueUrlInput{QueueName: aws.String(job.Topic + ".fifo")})
	if err != nil {
		return nil, err
	}
	return newTextbook(ctx, job, m, func() {}, func(ctx context.Context, id int64, key string, body []byte) error {
		_, err := client.SendMessage(ctx, &sdk.SendMessageInput{
			QueueUrl: out.QueueUrl, MessageBody: aws.String(string(body)), MessageGroupId: &key,
			MessageDeduplicationId: aws.String(strconv.FormatInt(id, 10)),
		})
		return err
	})
}

func newTextbook(
	ctx context.Context, job Job, m *meter, closeClient func(), send func(context.Context, int64, string, []byte) error,
) (*task, error) {
	pool, err := pgxpool.New(ctx, job.Store)
	if err != nil {
		closeClient()
		return nil, err
	}
	t := &textbook{pool: pool, table: pgx.Identifier{job.Schema, TextbookTable}.Sanitize(), send: send, m: m}
	return &task{run: t.run, close: func() { pool.Close(); closeClient() }}, nil
}

func (t *textbook) run(ctx context.Context) error {
	for {
		n := 0
		err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) (err error) {
			n, err = t.batch(ctx, tx)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
		t.m.add(n)
	}
}

func (t *textbook) batch(ctx context.Context, tx pgx.Tx) (int, error) {
	type row struct {
		ID          int64
		AggregateID string
		Payload     []byte
	}
	found, err := tx.Query(ctx, `SELECT id, aggregate_id, payload FROM `+t.table+`
		WHERE published_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return 0, err
	}
	rows, err := pgx.CollectRows(found, pgx.RowToStructByName[row])
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := t.send(ctx, r.ID, r.AggregateID, r.Payload); err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, "UPDATE "+t.table+" SET published_at = now() WHERE id = $1", r.ID); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}
