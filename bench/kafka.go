package main

import (
	"context"
	"fmt"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/bench/internal/worker"
	"github.com/go-outbox/outbox/store/postgres"
)

const storeLimit = "limit: PostgreSQL"

// storeDrain finds out what the database gives when nothing is published.
func storeDrain(e *environment, to target.Target) drain {
	return drain{
		name: storeLimit, kind: worker.Drain, to: to, rows: e.rows,
		note: "read and marked in batches of 1,000, overlapped, nothing else",
	}
}

// limit adds the smaller of what the database gives and what a broker takes.
func limit(ctx context.Context, e *environment, r *report.Report, name, publish string, to target.Target) error {
	store, ok := r.Value(storeLimit)
	if !ok { // the scenario that measures it was left out
		medians, err := measureAll(ctx, e, r, storeDrain(e, to))
		if err != nil {
			return err
		}
		store = medians[storeLimit].rate
	}
	broker, _ := r.Value(publish)
	r.Add(report.Figure{Name: name, Value: min(store, broker), Unit: "msg/s", Note: "the smaller of both"})
	return nil
}

// kafkaDrains are ours with default settings, what limits them, and what people use today.
func kafkaDrains(ctx context.Context, e *environment, r *report.Report) error {
	peers := e.peerRows()
	medians, err := measureAll(ctx, e, r,
		storeDrain(e, e.kafka),
		drain{
			name: "limit: Kafka", kind: worker.Publish, to: e.kafka, rows: e.rows, warmUp: true,
			note: "ready messages in batches of 1,000, acks=all, 8 in flight",
		},
		drain{name: "kafka: mark", to: e.kafka, rows: e.rows, note: "the default"},
		drain{name: "kafka: hot", to: e.kafka, rows: e.rows, mix: load.Hot, note: "one aggregate has a fifth"},
		drain{name: "kafka: delete", to: e.kafka, rows: e.rows, after: postgres.Delete},
		drain{name: "kafka: archive", to: e.kafka, rows: e.rows, after: postgres.Archive},
		drain{name: "kafka: forwarder", kind: worker.Forwarder, to: e.kafka, rows: peers, note: "Watermill, default schema"},
		drain{name: "kafka: forwarder, queue", kind: worker.Queue, to: e.kafka, rows: peers, note: "Watermill, queue schema"},
		drain{name: "kafka: textbook", kind: worker.Textbook, to: e.kafka, rows: peers, note: "SKIP LOCKED, one by one"},
	)
	if err != nil {
		return err
	}
	if err := limit(ctx, e, r, "limit: PostgreSQL to Kafka", "limit: Kafka", e.kafka); err != nil {
		return err
	}
	r.Ratio("kafka_drain_vs_limit", "kafka: mark", "limit: PostgreSQL to Kafka", "bar 0.6")
	r.Ratio("hot_vs_uniform", "kafka: hot", "kafka: mark", "bar 0.5")
	r.Ratio("kafka_drain_vs_forwarder", "kafka: mark", "kafka: forwarder", "bar 20")
	r.Ratio("kafka_drain_vs_textbook", "kafka: mark", "kafka: textbook", "")
	ours := medians["kafka: mark"]
	r.Add(report.Figure{Name: "cpu_us_per_message", Value: ours.PerMessage(e.rows), Unit: "us", Note: "bar 15"})
	r.Add(report.Figure{
		Name: "allocations of a message", Value: float64(ours.Mallocs) / float64(e.rows),
		Note: "the whole worker, Kafka's and PostgreSQL's clients included",
	})
	return nil
}

// largeBacklog compares the rates of a small and of a large backlog.
func largeBacklog(ctx context.Context, e *environment, r *report.Report) error {
	small := drain{name: "kafka: small backlog", to: e.kafka, rows: min(20_000, e.rows)}
	if _, err := measureAll(ctx, e, r, small); err != nil {
		return err
	}
	once := *e
	once.repeats = 1 // it takes minutes
	large := drain{name: "kafka: large backlog", to: e.kafka, rows: e.large}
	medians, err := measureAll(ctx, &once, r, large)
	if err != nil {
		return err
	}
	r.Ratio("million_vs_20k", large.name, small.name, "bar 0.8")
	r.Add(report.Figure{
		Name: "rss_mib", Value: medians[large.name].MiB(), Unit: "MiB",
		Note: fmt.Sprintf("with a backlog of %d rows; bar 100", e.large),
	})
	return nil
}

// costs are what each message takes from the database.
func costs(ctx context.Context, e *environment, r *report.Report) error {
	for _, after := range []postgres.AfterPublish{postgres.Mark, postgres.Archive, postgres.Delete} {
		d, err := drain{to: e.kafka, rows: e.rows, after: after, count: true}.run(ctx, e)
		if err != nil {
			return err
		}
		r.Add(report.Figure{
			Name: fmt.Sprintf("WAL of a message, %s", after), Value: float64(d.wal) / float64(e.rows), Unit: "bytes",
			Note: "everything that the server wrote meanwhile, full pages included",
		})
		r.Add(report.Figure{
			Name: fmt.Sprintf("round trips of 1,000 messages, %s", after), Value: 1000 * float64(d.RoundTrips) / float64(e.rows),
		})
	}
	return nil
}

// batchSizes are other sizes than the defaults.
func batchSizes(ctx context.Context, e *environment, r *report.Report) error {
	var drains []drain
	for _, size := range [][2]int{
		{100, 100}, {500, 250}, {1000, 250}, {1000, 500}, {1000, 1000}, {2000, 500}, {5000, 1000},
	} {
		drains = append(drains, drain{
			name: fmt.Sprintf("kafka: fetch %d, publish %d", size[0], size[1]), to: e.kafka, rows: e.rows,
			fetchSize: size[0], publishSize: size[1],
		})
	}
	_, err := measureAll(ctx, e, r, drains...)
	return err
}
