package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/bench/internal/worker"
	"github.com/go-outbox/outbox/store/postgres"
)

// drain is a backlog that somebody brings to a broker, or one half of that.
type drain struct {
	name  string
	kind  worker.Kind // empty is our dispatcher
	to    target.Target
	rows  int
	mix   load.Mix // empty is uniform
	after postgres.AfterPublish
	// fetchSize and publishSize are other batches than by default.
	fetchSize, publishSize int
	// count counts the round trips to the database.
	count bool
	// warmUp runs once before it is measured: a broker that has just started is slow.
	warmUp bool
	note   string
}

// drained is what one drain took.
type drained struct {
	worker.Sample
	rate float64 // messages a second
	wal  int64   // bytes the server wrote to its log meanwhile
}

// run fills a table, drains it and checks what arrived.
func (c drain) run(ctx context.Context, e *environment) (drained, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	if c.kind == "" {
		c.kind = worker.Outbox
	}
	if c.mix == "" {
		c.mix = load.Uniform
	}
	topic, err := c.to.Create(ctx)
	if err != nil {
		return drained{}, err
	}
	defer c.to.Drop(topic)
	if err := c.fill(ctx, e, topic); err != nil {
		return drained{}, err
	}
	before, err := e.db.walPosition(ctx)
	if err != nil {
		return drained{}, err
	}
	s, err := worker.Do(ctx, worker.Job{
		Kind: c.kind, Store: e.db.url, Schema: e.db.schema, Broker: c.to.URL(), Topic: topic, Rows: c.rows,
		After: string(c.after), FetchSize: c.fetchSize, PublishSize: c.publishSize, Count: c.count,
	})
	if err != nil {
		return drained{}, err
	}
	after, err := e.db.walPosition(ctx)
	if err != nil {
		return drained{}, err
	}
	result := drained{Sample: s, rate: float64(c.rows) / s.Took.Seconds(), wal: after - before}
	if c.kind == worker.Drain || c.kind == worker.Publish {
		return result, nil
	}
	repeats, err := verify(ctx, c.to, topic, c.rows)
	if err == nil && repeats > 0 && c.kind == worker.Outbox {
		err = fmt.Errorf("void: %d repeats though nothing failed", repeats)
	}
	return result, err
}

// fill makes the table that the kind works on.
func (c drain) fill(ctx context.Context, e *environment, topic string) error {
	switch c.kind {
	case worker.Forwarder, worker.Pooled, worker.Queue:
		if err := e.db.reset(ctx); err != nil {
			return err
		}
		return worker.CreateForwarder(ctx, e.db.pool, c.kind, e.db.schema, topic, c.mix, c.rows)
	case worker.Textbook, worker.Single:
		if err := e.db.reset(ctx); err != nil {
			return err
		}
		return worker.CreateTextbook(ctx, e.db.pool, e.db.schema, c.mix, c.rows)
	case worker.Publish:
		return nil
	default:
		s, err := e.db.outbox(ctx, c.after)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		return e.db.fill(ctx, topic, c.rows, c.mix)
	}
}

// measureAll repeats drains and adds their medians to the report. They take turns, so that a slow minute of the machine
// hits all of them and not the ratios between them.
func measureAll(
	ctx context.Context, e *environment, r *report.Report, drains ...drain,
) (medians map[string]drained, err error) {
	all := make([][]drained, len(drains))
	for _, c := range drains {
		if !c.warmUp {
			continue
		}
		if _, err := c.run(ctx, e); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for repeat := range e.repeats {
		for n := range drains {
			i := (repeat + n) % len(drains) // each has another one before it every time
			c := drains[i]
			d, err := c.run(ctx, e)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			all[i] = append(all[i], d)
		}
	}
	medians = map[string]drained{}
	for i, c := range drains {
		d := medianBy(all[i], func(d drained) float64 { return d.rate })
		medians[c.name] = d
		note := fmt.Sprintf("%d rows", c.rows)
		if c.note != "" {
			note += ", " + c.note
		}
		r.Add(report.Figure{
			Name: c.name, Value: d.rate, Unit: "msg/s", CPU: d.PerMessage(c.rows), RSS: d.MiB(), Note: note,
		})
	}
	return medians, nil
}
