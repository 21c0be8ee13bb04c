package worker

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/bench/internal/target"
)

// openPublish is the broker's own limit.
func openPublish(ctx context.Context, job Job) (*task, error) {
	t, err := target.Open(ctx, job.Broker)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context) error { return t.Publish(ctx, job.Topic, job.Rows) }
	return &task{run: run, close: t.Close}, nil
}

// openDrain is the database's own limit: it reads the outbox by id and marks it, one batch while the next is read.
func openDrain(ctx context.Context, job Job, m *meter) (*task, error) {
	pool, err := pgxpool.New(ctx, job.Store)
	if err != nil {
		return nil, err
	}
	d := &drain{pool: pool, table: pgx.Identifier{job.Schema, "outbox"}.Sanitize(), m: m}
	return &task{run: d.run, close: pool.Close}, nil
}

// pending are the rows that the outbox has an index of by id.
const pending = "published_at IS NULL AND NOT dlq AND lane >= 0"

type drain struct {
	pool  *pgxpool.Pool
	table string
	m     *meter
}

func (d *drain) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, marked := make(chan []int64, 2), make(chan error, 1)
	go func() { marked <- d.mark(ctx, batches) }()
	err := d.read(ctx, batches)
	close(batches)
	if failed := <-marked; failed != nil {
		return failed
	}
	return err
}

// read hands on the ids of each batch; what marks them ends ctx when it fails.
func (d *drain) read(ctx context.Context, batches chan<- []int64) error {
	for last := int64(0); ; {
		rows, err := d.pool.Query(ctx, `SELECT id, event_id, topic, aggregate_type, aggregate_id, event_type, payload::text,
			headers FROM `+d.table+` WHERE `+pending+` AND id > $1 ORDER BY id LIMIT 1000`, last)
		if err != nil {
			return err
		}
		var ids []int64
		var id int64
		var eventID, topic, typ, aggregate, event, payload string
		var headers []byte
		all := []any{&id, &eventID, &topic, &typ, &aggregate, &event, &payload, &headers}
		if _, err := pgx.ForEachRow(rows, all, func() error { ids = append(ids, id); return nil }); err != nil {
			return err
		}
		if len(ids) == 0 {
			return nil
		}
		last = ids[len(ids)-1]
		select {
		case batches <- ids:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *drain) mark(ctx context.Context, batches <-chan []int64) error {
	for ids := range batches {
		if _, err := d.pool.Exec(ctx, "UPDATE "+d.table+" SET published_at = now() WHERE "+pending+" AND id = ANY($1)", ids); err != nil {
			for range batches { // lets the reader end
			}
			return fmt.Errorf("mark: %w", err)
		}
		d.m.add(len(ids))
	}
	return nil
}
