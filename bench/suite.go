package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-outbox/outbox/bench/internal/report"
)

// names are those of the last line, in its order. They stay: programs compare runs by them.
var names = []string{
	"kafka_drain_vs_forwarder", "kafka_drain_vs_limit", "kafka_drain_vs_debezium", "kafka_delete_vs_debezium",
	"hot_vs_uniform", "rabbitmq_drain_vs_forwarder", "rabbitmq_drain_vs_forwarder_pooled", "rabbitmq_drain_vs_limit", "sqs_drain_vs_single",
	"sqs_drain_vs_limit", "p50_ms_100", "p50_ms_1000", "p99_ms_1000", "million_vs_20k", "held_snapshot_fetch",
	"tx_with_outbox", "cpu_us_per_message", "rss_mib", "idle_queries_per_s",
}

// scenario is one thing to measure.
type scenario struct {
	name string
	run  func(context.Context, *environment, *report.Report) error
	// full says that the quick suite leaves it out unless it is named.
	full bool
	// needs are brokers without which it is left out.
	needs func(*environment) bool
}

func scenarios() []scenario {
	kafka := func(e *environment) bool { return e.kafka != nil }
	rabbitmq := func(e *environment) bool { return e.rabbitmq != nil }
	return []scenario{
		{name: "kafka", run: kafkaDrains, needs: kafka},
		{name: "debezium", run: debeziumDrains, needs: kafka, full: true},
		{name: "backlog", run: largeBacklog, needs: kafka},
		{name: "rabbitmq", run: rabbitDrains, needs: rabbitmq},
		{name: "sqs", run: sqsDrains},
		{name: "latency", run: latencies, needs: kafka},
		{name: "idle", run: idle, needs: kafka},
		{name: "held", run: heldTransactions, needs: kafka},
		{name: "transactions", run: businessTransactions},
		{name: "costs", run: costs, needs: kafka},
		{name: "replicas", run: replicas, needs: kafka, full: true},
		{name: "poison", run: poisonAggregate, needs: kafka, full: true},
		{name: "sqlite", run: sqliteDrain, needs: kafka, full: true},
		{name: "batches", run: batchSizes, needs: kafka, full: true},
	}
}

// known fails when a scenario was named that does not exist.
func (o options) known() error {
	var all []string
	for _, s := range scenarios() {
		all = append(all, s.name)
	}
	for name := range strings.SplitSeq(o.only, ",") {
		if o.only != "" && !slices.Contains(all, name) {
			return fmt.Errorf("unknown scenario %q; use some of %s", name, strings.Join(all, ","))
		}
	}
	return nil
}

// chosen says whether a run has a scenario: those that were named, or else those of the suite.
func (o options) chosen(s scenario) bool {
	if o.only != "" {
		return slices.Contains(strings.Split(o.only, ","), s.name)
	}
	return !s.full || o.suite == "full" || s.name == "debezium" && o.debezium
}

// measure runs the scenarios. One that fails is told, and its figures are missing; the others go on.
func measure(ctx context.Context, e *environment, r *report.Report) (failed error) {
	for _, s := range scenarios() {
		if !e.chosen(s) {
			continue
		}
		if s.needs != nil && !s.needs(e) {
			fmt.Fprintf(os.Stderr, "%s  %s: left out, its broker has no address\n", time.Now().Format(time.TimeOnly), s.name)
			continue
		}
		fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), s.name)
		if err := s.run(ctx, e, r); err != nil {
			fmt.Fprintf(os.Stderr, "%s  %s: %v\n", time.Now().Format(time.TimeOnly), s.name, err)
			failed = fmt.Errorf("%s: %w", s.name, err)
		}
		if ctx.Err() != nil {
			return failed
		}
	}
	return failed
}
