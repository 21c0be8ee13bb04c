// Bench measures the dispatcher and what people use instead of it against real services, and prints a table of medians
// with CPU and memory, and what limits each figure beside it. It needs the addresses that scripts/services prints:
//
//	eval "$(scripts/services up postgres kafka rabbitmq sqs)" && go -C bench run . -suite quick
//
// What is measured runs in a process of its own. Machines are noisy: compare figures of one run only. Every run reads
// back what reached the broker; one that lost or reordered an event is void. The last line is "bench: name=value ...".
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == worker.Argument {
		err = worker.Main(ctx, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what a run measures with.
type options struct {
	postgres, kafka, rabbitmq, sqs string
	suite, only                    string
	rows, large, repeats           int
	hold, steady                   time.Duration
	debezium                       bool
	json, markdown                 string
}

// peerRows is a backlog for peers, whose rate does not depend on it and is far lower than ours.
func (o options) peerRows() int { return o.rows / 5 }

// sqsRows is a backlog for SQS: ElasticMQ is slow, above all to read back.
func (o options) sqsRows() int { return o.rows / 20 }

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.suite, "suite", "quick", "quick or full")
	flags.StringVar(&o.postgres, "postgres", os.Getenv("OUTBOX_TEST_POSTGRES_URL"), "PostgreSQL `URL`")
	flags.StringVar(&o.kafka, "kafka", os.Getenv("OUTBOX_TEST_KAFKA_URL"), "Kafka `URL`")
	flags.StringVar(&o.rabbitmq, "rabbitmq", os.Getenv("OUTBOX_TEST_RABBITMQ_URL"), "RabbitMQ `URL`")
	flags.StringVar(&o.sqs, "sqs", os.Getenv("OUTBOX_TEST_SQS_URL"), "SQS `URL`")
	flags.StringVar(&o.only, "only", "", "run only these scenarios, separated by commas, whatever the suite")
	flags.IntVar(&o.rows, "rows", 200_000, "rows of a backlog")
	flags.IntVar(&o.large, "large", 1_000_000, "rows of a large backlog")
	flags.IntVar(&o.repeats, "repeats", 0, "how often each figure is measured; 0 is the suite's")
	flags.DurationVar(&o.hold, "hold", 0, "how long transactions are held; 0 is the suite's")
	flags.DurationVar(&o.steady, "steady", 10*time.Second, "how long a steady rate lasts")
	flags.BoolVar(&o.debezium, "debezium", false, "measure Debezium in the quick suite too (needs Java and Maven)")
	flags.StringVar(&o.json, "json", "", "write the figures to this `file` as JSON")
	flags.StringVar(&o.markdown, "markdown", "", "write the figures to this `file` as a Markdown table")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.postgres == "" {
		return o, errors.New(`needs -postgres: eval "$(scripts/services up postgres kafka rabbitmq sqs)"`)
	}
	if err := o.known(); err != nil {
		return o, err
	}
	switch o.suite {
	case "quick":
		o.repeats, o.hold = or(o.repeats, 3), or(o.hold, 20*time.Second)
	case "full":
		o.repeats, o.hold = or(o.repeats, 5), or(o.hold, time.Minute)
	default:
		return o, fmt.Errorf("unknown suite %q; use quick or full", o.suite)
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	e, err := newEnvironment(ctx, o)
	if err != nil {
		return err
	}
	defer e.close()
	r := report.New(names...)
	failed := measure(ctx, e, r)
	machine := e.machine()
	markdown := func(w io.Writer) error {
		_, err := fmt.Fprintln(w, machine+"\n")
		return errors.Join(err, r.Markdown(w))
	}
	if err := errors.Join(writeFile(o.json, writeJSON(r)), writeFile(o.markdown, markdown)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, machine)
	return errors.Join(failed, err, r.Table(os.Stdout), r.Line(os.Stdout))
}

func writeJSON(r *report.Report) func(io.Writer) error {
	return func(w io.Writer) error {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(r.Figures())
	}
}

// writeFile writes a file, unless it has no name.
func writeFile(path string, print func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path) //nolint:gosec // the caller's choice
	if err != nil {
		return err
	}
	return errors.Join(print(f), f.Close())
}

func or[T comparable](value, byDefault T) T {
	var zero T
	if value == zero {
		return byDefault
	}
	return value
}
