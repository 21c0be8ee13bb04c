package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/worker"
)

// replicas drains one backlog with several dispatchers, each a process of its own, that had shared the lanes before.
func replicas(ctx context.Context, e *environment, r *report.Report) error {
	for _, n := range []int{1, 2, 4} {
		rate, s, err := replicated(ctx, e, n)
		if err != nil {
			return fmt.Errorf("%d dispatchers: %w", n, err)
		}
		r.Add(report.Figure{
			Name: fmt.Sprintf("kafka: %d dispatchers", n), Value: rate, Unit: "msg/s", CPU: s.PerMessage(e.rows), RSS: s.MiB(),
			Note: fmt.Sprintf("%d rows of one transaction; memory of the largest", e.rows),
		})
	}
	return nil
}

func replicated(ctx context.Context, e *environment, n int) (_ float64, s worker.Sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	first, err := start(ctx, e.db, e.kafka, worker.Job{})
	if err != nil {
		return 0, s, err
	}
	defer func() { err = errors.Join(err, first.stop()) }()
	workers := []*worker.Process{first.Process}
	for range n - 1 {
		w, err := worker.Start(ctx, worker.Job{
			Kind: worker.Outbox, Store: e.db.url, Schema: e.db.schema, Broker: e.kafka.URL(), Topic: first.topic,
		})
		if err != nil {
			return 0, s, err
		}
		defer func() { _ = w.Stop() }()
		if _, err := w.Sample(); err != nil { // it works from now on
			return 0, s, err
		}
		workers = append(workers, w)
	}
	if err := e.db.untilShared(ctx, n); err != nil {
		return 0, s, err
	}
	if err := e.db.fillAtOnce(ctx, first.topic, e.rows, func(pgx.Tx) error { return nil }); err != nil {
		return 0, s, err
	}
	begin := time.Now()
	if s, err = untilPublished(ctx, e.rows, workers...); err != nil {
		return 0, s, err
	}
	rate := float64(e.rows) / time.Since(begin).Seconds()
	_, err = verify(ctx, e.kafka, first.topic, e.rows)
	return rate, s, err
}

// untilShared waits until every lane has an owner, and none of n has more than one lane above its share.
func (d *database) untilShared(ctx context.Context, n int) error {
	for {
		var owners, fewest, most, free int
		err := d.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE owner IS NOT NULL), coalesce(min(lanes), 0),
			coalesce(max(lanes), 0), coalesce(sum(lanes) FILTER (WHERE owner IS NULL), 0)
			FROM (SELECT owner, count(*) AS lanes FROM `+d.table("outbox_lanes")+` GROUP BY owner) o`).
			Scan(&owners, &fewest, &most, &free)
		if err != nil {
			return err
		}
		if owners == n && free == 0 && most-fewest <= 1 {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d owners of %d to %d lanes, %d lanes free: %w", owners, fewest, most, free, err)
		}
	}
}
