package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/worker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

// sqliteDrain brings a backlog from a file to Kafka.
func sqliteDrain(ctx context.Context, e *environment, r *report.Report) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var all []drained
	for range e.repeats {
		d, err := drainFile(ctx, e)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	d := medianBy(all, func(d drained) float64 { return d.rate })
	r.Add(report.Figure{
		Name: "sqlite to kafka", Value: d.rate, Unit: "msg/s", CPU: d.PerMessage(e.rows), RSS: d.MiB(),
		Note: fmt.Sprintf("%d rows, the database's work included", e.rows),
	})
	return nil
}

func drainFile(ctx context.Context, e *environment) (drained, error) {
	dir, err := os.MkdirTemp("", "outbox-bench-")
	if err != nil {
		return drained{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary folder
	path := filepath.Join(dir, "outbox.db")
	topic, err := e.kafka.Create(ctx)
	if err != nil {
		return drained{}, err
	}
	defer e.kafka.Drop(topic)
	if err := fillFile(ctx, path, topic, e.rows); err != nil {
		return drained{}, err
	}
	s, err := worker.Do(ctx, worker.Job{
		Kind: worker.Outbox, Store: "sqlite://" + path, Broker: e.kafka.URL(), Topic: topic, Rows: e.rows,
	})
	if err != nil {
		return drained{}, err
	}
	_, err = verify(ctx, e.kafka, topic, e.rows)
	return drained{Sample: s, rate: float64(e.rows) / s.Took.Seconds()}, err
}

func fillFile(ctx context.Context, path, topic string, rows int) error {
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	steps := s.Migrations()
	if _, err := s.Migrate(ctx, steps[len(steps)-1].Version); err != nil {
		return err
	}
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	enqueuer := s.In(tx)
	for n := 1; n <= rows; n++ {
		key := load.Key(n)
		if _, err := enqueuer.Enqueue(ctx, core.Message{
			AggregateType: "order", AggregateID: key, EventType: "order.created", Topic: topic, Payload: load.Body(n, key),
		}); err != nil {
			return err
		}
	}
	return tx.Commit()
}
