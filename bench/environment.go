package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/go-outbox/outbox/bench/internal/cluster"
	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/store/postgres"
)

// cleanup bounds what is done after a scenario, even when that was interrupted.
const cleanup = 20 * time.Second

// environment is the services of a run.
type environment struct {
	options
	db                   *database
	kafka, rabbitmq, sqs target.Target // nil where no address was given
}

func newEnvironment(ctx context.Context, o options) (*environment, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	e := &environment{options: o}
	var err error
	if e.db, err = openDatabase(ctx, o.postgres); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	for _, b := range []struct {
		url  string
		into *target.Target
	}{{o.kafka, &e.kafka}, {o.rabbitmq, &e.rabbitmq}, {o.sqs, &e.sqs}} {
		if b.url == "" {
			continue
		}
		if *b.into, err = target.Open(ctx, b.url); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *environment) close() {
	for _, t := range []target.Target{e.kafka, e.rabbitmq, e.sqs} {
		if t != nil {
			t.Close()
		}
	}
	e.db.close()
}

// withNotify runs something on a server of its own that allows what the shared one does not: NOTIFY is never used
// where prepared transactions are allowed.
func withNotify(ctx context.Context, do func(*database) error) (err error) {
	c, err := cluster.Start(ctx, "max_prepared_transactions=0", "shared_buffers=256MB")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	db, err := openDatabase(ctx, c.URL())
	if err != nil {
		return err
	}
	defer db.close()
	return do(db)
}

// verify reads a topic back and fails unless every event is there, each key in order.
func verify(ctx context.Context, t target.Target, topic string, rows int) (repeats int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	check := load.NewCheck(rows)
	err = t.Read(ctx, topic, func(body []byte) (bool, error) {
		err := check.Add(body)
		return check.Missing() == 0, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, fmt.Errorf("void: %d of %d events did not arrive, %v among them", check.Missing(), rows, check.Absent())
	}
	return check.Repeats(), err
}

// machine says what the figures were measured on.
func (e *environment) machine() string {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	server := "PostgreSQL of unknown version"
	_ = e.db.pool.QueryRow(ctx, "SELECT 'PostgreSQL ' || current_setting('server_version')").Scan(&server)
	return fmt.Sprintf("Suite %s, backlogs of %d rows, median of %d; %d CPUs, %s, %s.", e.suite, e.rows, e.repeats,
		runtime.NumCPU(), server, runtime.Version())
}

// published is what becomes of rows by default.
const published = postgres.Mark
