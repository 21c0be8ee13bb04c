package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/bench/internal/debezium"
	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/bench/internal/worker"
)

// debeziumDrains are Debezium's outbox connector, as it comes and tuned.
func debeziumDrains(ctx context.Context, e *environment, r *report.Report) error {
	for _, c := range []struct {
		name, note string
		settings   map[string]string
	}{
		{"kafka: debezium", "default settings", nil},
		{"kafka: debezium, tuned", "poll 10 ms, batches of 8,192, producer batches of 256 KiB, lz4", debezium.Tuned()},
	} {
		var all []drained
		for range e.repeats {
			d, err := debeziumDrain(ctx, e, c.settings)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			all = append(all, d)
		}
		d := medianBy(all, func(d drained) float64 { return d.rate })
		r.Add(report.Figure{
			Name: c.name, Value: d.rate, Unit: "msg/s", CPU: d.PerMessage(e.rows), RSS: d.MiB(),
			Note: fmt.Sprintf("%d rows from the first one at the broker on, warm JVM, %s", e.rows, c.note),
		})
	}
	r.Ratio("kafka_drain_vs_debezium", "kafka: mark", "kafka: debezium, tuned", "bar 1.2")
	r.Ratio("kafka_delete_vs_debezium", "kafka: delete", "kafka: debezium, tuned", "bar 2.5")
	return nil
}

// debeziumDrain warms the connector up, stops it while a backlog is made, and measures how long that takes: not from
// the start of the task on, but from the first event at the broker on.
func debeziumDrain(ctx context.Context, e *environment, settings map[string]string) (_ drained, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	topic, err := e.kafka.Create(ctx)
	if err != nil {
		return drained{}, err
	}
	defer e.kafka.Drop(topic)
	if err := e.db.reset(ctx); err != nil {
		return drained{}, err
	}
	if err := debezium.Create(ctx, e.db.pool, e.db.schema); err != nil {
		return drained{}, err
	}
	seeds := target.Seeds(e.kafka.URL())
	connect, err := debezium.Start(ctx, debezium.Connector{
		Kafka: strings.Join(seeds, ","), Postgres: e.db.url, Schema: e.db.schema, Topic: topic, Settings: settings,
	})
	if err != nil {
		return drained{}, err
	}
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		err = errors.Join(err, connect.Stop(), debezium.Forget(after, e.db.pool))
	}()
	stored, closeClient, err := storedIn(seeds, topic)
	if err != nil {
		return drained{}, err
	}
	defer closeClient()
	return measureConnect(ctx, e, connect, topic, stored)
}

func measureConnect(
	ctx context.Context, e *environment, connect *debezium.Connect, topic string,
	stored func(context.Context) (int, error),
) (drained, error) {
	warmup := e.rows / 2
	if err := debezium.Fill(ctx, e.db.pool, e.db.schema, load.Uniform, 1, warmup); err != nil {
		return drained{}, err
	}
	if err := untilStored(ctx, stored, warmup); err != nil {
		return drained{}, fmt.Errorf("while warming up: %w", err)
	}
	if err := connect.Pause(ctx); err != nil {
		return drained{}, err
	}
	if err := debezium.Fill(ctx, e.db.pool, e.db.schema, load.Uniform, warmup+1, warmup+e.rows); err != nil {
		return drained{}, err
	}
	if err := connect.Resume(ctx); err != nil {
		return drained{}, err
	}
	if err := untilStored(ctx, stored, warmup+1); err != nil {
		return drained{}, err
	}
	first, err := stored(ctx)
	if err != nil {
		return drained{}, err
	}
	begin, cpu := time.Now(), cpuOf(connect.PID())
	if err := untilStored(ctx, stored, warmup+e.rows); err != nil {
		return drained{}, err
	}
	n := float64(warmup + e.rows - first)
	d := drained{rate: n / time.Since(begin).Seconds()}
	d.CPU = time.Duration(float64(cpuOf(connect.PID())-cpu) * float64(e.rows) / n)
	d.RSS = memoryOf(connect.PID())
	_, err = verify(ctx, e.kafka, topic, warmup+e.rows)
	return d, err
}

// storedIn returns a function that counts what a topic holds.
func storedIn(seeds []string, topic string) (stored func(context.Context) (int, error), closeClient func(), err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, nil, err
	}
	admin := kadm.NewClient(client)
	return func(ctx context.Context) (n int, err error) {
		offsets, err := admin.ListEndOffsets(ctx, topic)
		offsets.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
		return n, errors.Join(err, offsets.Error())
	}, admin.Close, nil
}

// untilStored asks the broker rather than reading along, so that nothing but the connector works meanwhile.
func untilStored(ctx context.Context, stored func(context.Context) (int, error), want int) error {
	for {
		n, err := stored(ctx)
		if err != nil || n >= want {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("void: %d of %d events were stored: %w", n, want, err)
		}
	}
}

// cpuOf is user and system time of another process so far.
func cpuOf(pid int) time.Duration {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// The name, in parentheses, may have spaces; utime and stime are the 14th and 15th field.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	utime, _ := strconv.Atoi(fields[11])
	stime, _ := strconv.Atoi(fields[12])
	const ticks = 100 // a second, on every Linux that Go knows
	return time.Duration(utime+stime) * time.Second / ticks
}

func memoryOf(pid int) int64 {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return worker.PeakMemory(status)
}
