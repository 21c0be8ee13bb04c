package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/bench/internal/worker"
)

// running is a dispatcher in a process of its own on an empty outbox, and a destination for it.
type running struct {
	*worker.Process
	db    *database
	to    target.Target
	topic string
}

// start makes the outbox and starts the dispatcher.
func start(ctx context.Context, db *database, to target.Target, job worker.Job) (*running, error) {
	s, err := db.outbox(ctx, published)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	topic, err := to.Create(ctx)
	if err != nil {
		return nil, err
	}
	job.Kind, job.Store, job.Schema, job.Broker, job.Topic = worker.Outbox, db.url, db.schema, to.URL(), topic
	p, err := worker.Start(ctx, job)
	if err == nil {
		_, err = p.Sample() // it works from now on
	}
	if err != nil {
		to.Drop(topic)
		return nil, err
	}
	return &running{Process: p, db: db, to: to, topic: topic}, nil
}

func (r *running) stop() error {
	err := r.Stop()
	r.to.Drop(r.topic)
	return err
}

// stream is a steady rate of events, from their commits to a consumer.
type stream struct {
	rate, warmup, total int
	each                int // events of one transaction
	db                  *database
	topic               string

	committed []atomic.Int64 // by number: when the commit was sent, in Unix nanoseconds
	durable   []atomic.Int64 // by number: when the database had answered it
	arrived   []int64        // by number: when a consumer had it
	warm      chan struct{}  // closed when the warm-up has arrived
}

const (
	// writers commit at the same time, each one transaction after the other.
	writers = 16
	// perCommit is how many commits a second there are at most: a higher rate is several events in each.
	perCommit = 1000
)

func newStream(r *running, rate int, length time.Duration) *stream {
	s := &stream{rate: rate, warmup: max(300, 2*rate), db: r.db, topic: r.topic, warm: make(chan struct{})}
	s.each = max(1, rate/perCommit)
	s.total = s.warmup + rate*int(length/time.Second)
	s.committed, s.durable, s.arrived = make([]atomic.Int64, s.total+1), make([]atomic.Int64, s.total+1), make([]int64, s.total+1)
	return s
}

// consume notes the arrivals until everything is there.
func (s *stream) consume(ctx context.Context, to target.Target) error {
	check := load.NewCheck(s.total)
	warm := 0
	err := to.Read(ctx, s.topic, func(body []byte) (bool, error) {
		now := time.Now().UnixNano()
		var event struct{ N int }
		if err := json.Unmarshal(body, &event); err != nil {
			return false, err
		}
		if err := check.Add(body); err != nil {
			return false, err
		}
		s.arrived[event.N] = now
		if event.N <= s.warmup {
			if warm++; warm == s.warmup {
				close(s.warm)
			}
		}
		return check.Missing() == 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("void: %d of %d events did not arrive, %v among them; unpublished rows: %s: %w",
			check.Missing(), s.total, check.Absent(), s.db.unpublished(), err)
	}
	if err == nil && check.Repeats() > 0 {
		err = fmt.Errorf("void: %d repeats though nothing failed", check.Repeats())
	}
	return err
}

// write commits the events first to last at the rate.
func (s *stream) write(ctx context.Context, first, last int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	due := make(chan int, writers)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			// A session for each of them, so that all are in use all the time: one that is needed only when something
			// else was slow would have to read the catalog first.
			if err := s.db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
				for n := range due {
					if err := s.commit(ctx, c, n, min(n+s.each-1, last)); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				cancel(err)
			}
		})
	}
	begin := time.Now()
	for n := first; n <= last; n += s.each {
		if pause(ctx, time.Until(begin.Add(time.Duration(n-first)*time.Second/time.Duration(s.rate)))) != nil {
			break
		}
		select {
		case due <- n:
		case <-ctx.Done():
		}
	}
	close(due)
	wg.Wait()
	return context.Cause(ctx)
}

// commit writes some events in one transaction. Everything but the commit is one round trip; the clock starts when the
// commit is sent.
func (s *stream) commit(ctx context.Context, c *pgxpool.Conn, first, last int) error {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	for n := first; n <= last; n++ {
		key := fmt.Sprint("ord_", n) // a new one: the events of one aggregate must not be written at the same time
		b.Queue("INSERT INTO "+s.db.table("outbox")+` (aggregate_type, aggregate_id, event_type, topic, payload)
			VALUES ('order', $1, 'order.created', $2, $3)`, key, s.topic, load.Body(n, key))
	}
	if err := c.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	now := time.Now().UnixNano()
	for n := first; n <= last; n++ {
		s.committed[n].Store(now)
	}
	_, err := c.Exec(ctx, "COMMIT")
	now = time.Now().UnixNano()
	for n := first; n <= last; n++ {
		s.durable[n].Store(now)
	}
	return err
}

// streamed is what a stream measured after its warm-up.
type streamed struct {
	millis []float64 // from each commit to its arrival
	commit []float64 // what of it the commit itself took
	took   time.Duration
	cpu    time.Duration // of the dispatcher
	worker.Sample
}

// run warms up and then measures.
func (s *stream) run(ctx context.Context, r *running) (streamed, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	consumed := make(chan error, 1)
	go func() { consumed <- s.consume(ctx, r.to) }()
	result, err := s.measure(ctx, r, consumed)
	if err != nil {
		cancel()
		return streamed{}, errors.Join(err, <-consumed)
	}
	for n := s.warmup + 1; n <= s.total; n++ {
		result.millis = append(result.millis, float64(s.arrived[n]-s.committed[n].Load())/1e6)
		result.commit = append(result.commit, float64(s.durable[n].Load()-s.committed[n].Load())/1e6)
	}
	return result, nil
}

// measure takes what the consumer ended with and leaves a nil in its place, for run to wait for.
func (s *stream) measure(ctx context.Context, r *running, consumed chan error) (result streamed, err error) {
	if err := s.write(ctx, 1, s.warmup); err != nil {
		return result, err
	}
	select {
	case <-s.warm:
	case err := <-consumed:
		consumed <- nil
		return result, fmt.Errorf("while warming up: %w", err)
	}
	before, err := r.Sample()
	if err != nil {
		return result, err
	}
	begin := time.Now()
	if err := s.write(ctx, s.warmup+1, s.total); err != nil {
		return result, err
	}
	err = <-consumed
	consumed <- nil
	if err != nil {
		return result, err
	}
	result.took = time.Since(begin)
	result.Sample, err = r.Sample()
	result.cpu = result.CPU - before.CPU
	return result, err
}

// pause waits, or returns at once what ended ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
