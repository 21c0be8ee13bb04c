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

const poisonType = "poison"

// poisonAggregate measures what one event that the broker always refuses does to the rest: 50,000 followers of its
// aggregate wait before a backlog of others. The figure is the rate of the others, while the aggregate still fails.
func poisonAggregate(ctx context.Context, e *environment, r *report.Report) error {
	followers := min(50_000, e.rows)
	for _, c := range []struct {
		name      string
		eventType string
		followers int
	}{{"kafka: nobody poisoned", "order.created", 0}, {"kafka: poisoned", poisonType, followers}} {
		rate, s, err := poisoned(ctx, e, c.eventType, c.followers)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.Add(report.Figure{
			Name: c.name, Value: rate, Unit: "msg/s", CPU: s.PerMessage(e.rows), RSS: s.MiB(),
			Note: fmt.Sprintf("%d rows of others, behind %d of one aggregate whose first fails", e.rows, c.followers),
		})
	}
	r.Ratio("poisoned_vs_not", "kafka: poisoned", "kafka: nobody poisoned", "")
	return nil
}

func poisoned(
	ctx context.Context, e *environment, eventType string, followers int,
) (_ float64, s worker.Sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	d, err := start(ctx, e.db, e.kafka, worker.Job{Poison: poisonType})
	if err != nil {
		return 0, s, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := e.db.fillAtOnce(ctx, d.topic, e.rows, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO `+e.db.table("outbox")+`
			(aggregate_type, aggregate_id, event_type, topic, payload)
			SELECT 'order', 'poisoned', CASE WHEN g = 1 THEN $1 ELSE 'order.created' END, $2, '{}'
			FROM generate_series(1, $3::int) g ORDER BY g`, eventType, d.topic, followers)
		return err
	}); err != nil {
		return 0, s, err
	}
	begin := time.Now()
	s, err = untilPublished(ctx, e.rows, d.Process)
	return float64(e.rows) / time.Since(begin).Seconds(), s, err
}

// untilPublished waits until some workers together have published so many. The sample is the sum of their CPU, and the
// largest memory.
func untilPublished(ctx context.Context, rows int, workers ...*worker.Process) (sum worker.Sample, err error) {
	for {
		sum = worker.Sample{}
		for _, w := range workers {
			s, err := w.Sample()
			if err != nil {
				return sum, err
			}
			sum.Published += s.Published
			sum.CPU += s.CPU
			sum.RSS = max(sum.RSS, s.RSS)
		}
		if sum.Published >= rows {
			return sum, nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return sum, fmt.Errorf("%d of %d were published: %w", sum.Published, rows, err)
		}
	}
}
