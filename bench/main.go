// Bench measures the dispatcher against real services and prints a table of medians, with what limits each figure
// beside it. It starts nothing: give it the addresses that scripts/services prints.
//
//	eval "$(scripts/services up postgres kafka)" && go -C bench run . -suite quick
//
// Machines are noisy: compare figures of one run only. Every run reads back what reached the broker; one that lost or
// reordered an event is void. The last line is "bench: name=value ...".
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what a run measures with.
type options struct {
	postgres, kafka string
	rows, large     int
	repeats         int
	hold            time.Duration
	only            string
	json            string
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	suite := flags.String("suite", "quick", "quick or full")
	flags.StringVar(&o.postgres, "postgres", os.Getenv("OUTBOX_TEST_POSTGRES_URL"), "PostgreSQL URL")
	flags.StringVar(&o.kafka, "kafka", os.Getenv("OUTBOX_TEST_KAFKA_URL"), "Kafka URL")
	flags.IntVar(&o.rows, "rows", 0, "rows of a backlog, instead of the suite's")
	flags.IntVar(&o.repeats, "repeats", 0, "how often each figure is measured, instead of the suite's")
	flags.StringVar(&o.only, "only", "", "run only scenarios whose name contains this")
	profile := flags.String("cpuprofile", "", "write a CPU profile of the whole run to this file")
	flags.StringVar(&o.json, "json", "", "write the figures to this file too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.postgres == "" || o.kafka == "" {
		return errors.New(`needs -postgres and -kafka: eval "$(scripts/services up postgres kafka)"`)
	}
	switch *suite {
	case "quick":
		o.rows, o.repeats, o.hold, o.large = or(o.rows, 200_000), or(o.repeats, 3), 20*time.Second, 1_000_000
	case "full":
		o.rows, o.repeats, o.hold, o.large = or(o.rows, 200_000), or(o.repeats, 5), 60*time.Second, 1_000_000
	default:
		return fmt.Errorf("unknown suite %q; use quick or full", *suite)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	e, err := newEnvironment(ctx, o)
	if err != nil {
		return err
	}
	defer e.close()
	r := &report{}
	for _, s := range scenarios() {
		if !strings.Contains(s.name, o.only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), s.name)
		if err := s.run(ctx, e, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	r.print(os.Stdout)
	if o.json == "" {
		return nil
	}
	data, err := json.MarshalIndent(r.figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, data, 0o600)
}

// scenario is one thing to measure.
type scenario struct {
	name string
	run  func(context.Context, *environment, *report) error
}

func scenarios() []scenario {
	return []scenario{
		{"limits", limits},
		{"drain", drains},
		{"large backlog", largeDrain},
		{"latency", latencies},
		{"idle", idle},
		{"fetch under held transactions", heldTransactions},
		{"business transactions", businessTransactions},
	}
}

func or(value, byDefault int) int {
	if value == 0 {
		return byDefault
	}
	return value
}

// median of the values, which are at least one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
