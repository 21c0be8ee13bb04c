package main

import (
	"context"
	"strings"
	"time"

	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/bench/internal/worker"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
)

// rabbitDrains are ours to quorum queues, with every message confirmed, and what limits them.
func rabbitDrains(ctx context.Context, e *environment, r *report.Report) error {
	if _, err := measureAll(ctx, e, r,
		drain{
			name: "limit: RabbitMQ", kind: worker.Publish, to: e.rabbitmq, rows: e.rows, warmUp: true,
			note: "ready messages, 4 channels, 500 unconfirmed on each, 4 quorum queues",
		},
		drain{name: "rabbitmq: mark", to: e.rabbitmq, rows: e.rows, note: "4 quorum queues"},
		drain{
			name: "rabbitmq: forwarder", kind: worker.Forwarder, to: e.rabbitmq, rows: e.peerRows() / 4,
			note: "Watermill, default schema, confirms",
		},
		drain{
			name: "rabbitmq: forwarder, pooled", kind: worker.Pooled, to: e.rabbitmq, rows: e.peerRows() / 4,
			note: "the same with a pool of 4 channels; by default it opens one for each message",
		},
	); err != nil {
		return err
	}
	if err := limit(ctx, e, r, "limit: PostgreSQL to RabbitMQ", "limit: RabbitMQ", e.rabbitmq); err != nil {
		return err
	}
	r.Ratio("rabbitmq_drain_vs_limit", "rabbitmq: mark", "limit: PostgreSQL to RabbitMQ", "bar 0.6")
	r.Ratio("rabbitmq_drain_vs_forwarder", "rabbitmq: mark", "rabbitmq: forwarder", "bar 12")
	r.Ratio("rabbitmq_drain_vs_forwarder_pooled", "rabbitmq: mark", "rabbitmq: forwarder, pooled", "")
	return nil
}

// roundTrip is what a request to SQS takes within a region.
const roundTrip = 5 * time.Millisecond

// sqsDrains are ours to FIFO queues: of a real server, which is the limit there, and of a fake at a distance.
func sqsDrains(ctx context.Context, e *environment, r *report.Report) error {
	if e.sqs != nil {
		if err := elasticDrains(ctx, e, r); err != nil {
			return err
		}
	}
	fake, err := sqsfake.Start(sqsfake.Config{})
	if err != nil {
		return err
	}
	defer fake.Close()
	far, err := target.Open(ctx, "sqs://"+strings.TrimPrefix(fake.URL(), "http://"))
	if err != nil {
		return err
	}
	fake.SetLatency(roundTrip)
	if _, err := measureAll(ctx, e, r,
		drain{name: "sqs: 5 ms away", to: far, rows: e.sqsRows(), note: "a fake in this process"},
		drain{name: "sqs: 5 ms away, one by one", kind: worker.Single, to: far, rows: max(e.sqsRows()/10, 100)},
	); err != nil {
		return err
	}
	r.Ratio("sqs_drain_vs_single", "sqs: 5 ms away", "sqs: 5 ms away, one by one", "bar 8")
	return nil
}

func elasticDrains(ctx context.Context, e *environment, r *report.Report) error {
	if _, err := measureAll(ctx, e, r,
		drain{
			name: "limit: ElasticMQ", kind: worker.Publish, to: e.sqs, rows: e.sqsRows(), warmUp: true,
			note: "ready messages, 10 a request, 32 requests in flight",
		},
		drain{name: "sqs: ElasticMQ", to: e.sqs, rows: e.sqsRows()},
	); err != nil {
		return err
	}
	if err := limit(ctx, e, r, "limit: PostgreSQL to ElasticMQ", "limit: ElasticMQ", e.sqs); err != nil {
		return err
	}
	r.Ratio("sqs_drain_vs_limit", "sqs: ElasticMQ", "limit: PostgreSQL to ElasticMQ", "bar 0.6")
	return nil
}
