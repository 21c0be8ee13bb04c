package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/worker"
)

// latencies are from commit to consumer at steady rates.
func latencies(ctx context.Context, e *environment, r *report.Report) error {
	if err := withNotify(ctx, func(db *database) error {
		for _, rate := range []int{100, 1000} {
			if err := latency(ctx, e, db, r, rate, fmt.Sprintf("ms_%d", rate), "notified"); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, rate := range []int{100, 1000, 5000} {
		note := "polling only: the server allows prepared transactions"
		if err := latency(ctx, e, e.db, r, rate, fmt.Sprintf("ms_%d_polled", rate), note); err != nil {
			return err
		}
	}
	return nil
}

func latency(
	ctx context.Context, e *environment, db *database, r *report.Report, rate int, suffix, note string,
) (err error) {
	ctx, cancel := context.WithTimeout(ctx, e.steady+time.Minute)
	defer cancel()
	d, err := start(ctx, db, e.kafka, worker.Job{})
	if err != nil {
		return err
	}
	defer func() {
		if stop := d.stop(); err == nil {
			err = stop
		}
	}()
	result, err := newStream(d, rate, e.steady).run(ctx, d)
	if err != nil {
		return fmt.Errorf("%d/s: %w", rate, err)
	}
	reached := float64(len(result.millis)) / result.took.Seconds()
	r.Add(report.Figure{
		Name: "p50_" + suffix, Value: quantile(result.millis, 0.5), Unit: "ms",
		CPU: result.cpu.Seconds() / result.took.Seconds(), CPUUnit: "cores", RSS: result.MiB(),
		Note: fmt.Sprintf("commit to consumer, %.0f of %d/s reached for %v, %s", reached, rate, e.steady, note),
	})
	r.Add(report.Figure{
		Name: "p99_" + suffix, Value: quantile(result.millis, 0.99), Unit: "ms", Note: fmt.Sprintf(
			"the commit alone: p50 %.3g ms, p99 %.3g ms", quantile(result.commit, 0.5), quantile(result.commit, 0.99)),
	})
	return nil
}

// idle counts what a dispatcher asks that has nothing to do.
func idle(ctx context.Context, e *environment, r *report.Report) error {
	return withNotify(ctx, func(db *database) (err error) {
		d, err := start(ctx, db, e.kafka, worker.Job{Count: true})
		if err != nil {
			return err
		}
		defer func() {
			if stop := d.stop(); err == nil {
				err = stop
			}
		}()
		if err := pause(ctx, 20*time.Second); err != nil { // it falls asleep
			return err
		}
		before, err := d.Sample()
		if err != nil {
			return err
		}
		if err := pause(ctx, e.hold); err != nil {
			return err
		}
		after, err := d.Sample()
		if err != nil {
			return err
		}
		r.Add(report.Figure{
			Name: "idle_queries_per_s", Value: float64(after.RoundTrips-before.RoundTrips) / e.hold.Seconds(), Unit: "/s",
			CPU: (after.CPU - before.CPU).Seconds() / e.hold.Seconds(), CPUUnit: "cores", RSS: after.MiB(),
			Note: "all round trips, lease renewals included; bar 1",
		})
		return nil
	})
}
