package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/go-outbox/outbox/store/postgres"
)

// drained is what one drain of a backlog took.
type drained struct {
	rate  float64 // rows a second, until everything is acknowledged and settled
	cpu   float64 // own CPU, microseconds a message
	alloc float64 // allocations a message
}

// drain dispatches a backlog with default settings and checks what arrived.
func drain(ctx context.Context, e *environment, rows int, m mix, after postgres.AfterPublish) (drained, error) {
	s, err := e.store(ctx, after)
	if err != nil {
		return drained{}, err
	}
	defer func() { _ = s.Close() }()
	topic, b, err := e.topic(ctx)
	if err != nil {
		return drained{}, err
	}
	defer e.drop(topic, b)
	if err := e.fill(ctx, topic, rows, m); err != nil {
		return drained{}, err
	}
	d, err := e.dispatcher(s, b, nil)
	if err != nil {
		return drained{}, err
	}
	var before, afterwards runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start, cpu := time.Now(), used()
	if err := d.RunOnce(ctx); err != nil {
		return drained{}, err
	}
	took := time.Since(start)
	runtime.ReadMemStats(&afterwards)
	n := float64(rows)
	result := drained{
		rate: n / took.Seconds(), cpu: float64((used().cpu - cpu.cpu).Microseconds()) / n,
		alloc: float64(afterwards.Mallocs-before.Mallocs) / n,
	}
	repeats, err := e.verify(ctx, topic, rows)
	if err == nil && repeats > 0 {
		err = fmt.Errorf("void: %d repeats though nothing failed", repeats)
	}
	return result, err
}

func drains(ctx context.Context, e *environment, r *report) error {
	for _, c := range []struct {
		name  string
		mix   mix
		after postgres.AfterPublish
	}{
		{"kafka drain", uniform, postgres.Mark},
		{"kafka drain hot", hot, postgres.Mark},
		{"kafka drain delete", uniform, postgres.Delete},
		{"kafka drain archive", uniform, postgres.Archive},
	} {
		var rates, cpus, allocs []float64
		for range e.repeats {
			d, err := drain(ctx, e, e.rows, c.mix, c.after)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			rates, cpus, allocs = append(rates, d.rate), append(cpus, d.cpu), append(allocs, d.alloc)
		}
		r.add(c.name, median(rates), "msg/s", fmt.Sprintf("%d rows, own CPU %.1f us and %.1f allocations a message",
			e.rows, median(cpus), median(allocs)))
		if c.name == "kafka drain" {
			r.name("cpu_us_per_message", median(cpus), "us", "the dispatcher's own")
		}
	}
	r.ratio("kafka_drain_vs_limit", "kafka drain", "limit", "bar 0.6")
	r.ratio("hot_vs_limit", "kafka drain hot", "limit", "")
	r.ratio("hot_vs_uniform", "kafka drain hot", "kafka drain", "bar 0.5")
	return nil
}

func largeDrain(ctx context.Context, e *environment, r *report) error {
	small, err := drain(ctx, e, 20_000, uniform, postgres.Mark)
	if err != nil {
		return err
	}
	large, err := drain(ctx, e, e.large, uniform, postgres.Mark)
	if err != nil {
		return err
	}
	r.add("drain of 20,000", small.rate, "msg/s", "")
	r.add("drain of a million", large.rate, "msg/s", fmt.Sprintf("%d rows", e.large))
	r.name("million_vs_20k", large.rate/small.rate, "x", "bar 0.8")
	return nil
}
