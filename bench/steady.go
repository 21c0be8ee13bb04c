package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// latencies measures commit to consumer at steady rates: the payload carries the moment before the commit, a consumer
// notes when it has the message.
func latencies(ctx context.Context, e *environment, r *report) error {
	for _, rate := range []int{100, 1000} {
		l, err := latency(ctx, e, rate, 10*time.Second)
		if err != nil {
			return err
		}
		note := fmt.Sprintf("commit to consumer at %d/s, %d events, own CPU %.2f of a core", rate, len(l.all), l.cpu)
		r.name(fmt.Sprintf("p50_ms_%d", rate), l.at(0.5), "ms", note)
		r.name(fmt.Sprintf("p99_ms_%d", rate), l.at(0.99), "ms", "")
	}
	return nil
}

type latencyResult struct {
	all []float64 // milliseconds, sorted
	cpu float64
}

func (l latencyResult) at(q float64) float64 { return l.all[int(q*float64(len(l.all)-1))] }

func latency(ctx context.Context, e *environment, rate int, length time.Duration) (latencyResult, error) {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	s, err := e.store(ctx, postgres.Mark)
	if err != nil {
		return latencyResult{}, err
	}
	defer func() { _ = s.Close() }()
	topic, b, err := e.topic(ctx)
	if err != nil {
		return latencyResult{}, err
	}
	defer e.drop(topic, b)
	d, err := e.dispatcher(s, b, nil)
	if err != nil {
		return latencyResult{}, err
	}
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { _ = d.Run(work) })

	client, err := kgo.NewClient(kgo.SeedBrokers(e.seeds()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return latencyResult{}, err
	}
	defer client.Close()
	total := rate * int(length/time.Second)
	var result latencyResult
	read := make(chan error, 1)
	wg.Go(func() { read <- collect(ctx, client, total, &result) })
	start, cpu := time.Now(), used()
	if err := write(ctx, e, topic, rate, total); err != nil {
		return latencyResult{}, err
	}
	if err := <-read; err != nil {
		return latencyResult{}, err
	}
	result.cpu = (used().cpu - cpu.cpu).Seconds() / time.Since(start).Seconds()
	slices.Sort(result.all)
	return result, nil
}

// write commits events one by one at a rate, from other connections than the dispatcher's, and does not nudge.
func write(ctx context.Context, e *environment, topic string, rate, total int) error {
	const writers = 4
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			tick := time.NewTicker(time.Second * writers / time.Duration(rate))
			defer tick.Stop()
			for range total / writers {
				select {
				case <-tick.C:
				case <-ctx.Done():
					errs[w] = ctx.Err()
					return
				}
				body, _ := json.Marshal(map[string]int64{"at": time.Now().UnixNano()})
				_, err := e.pool.Exec(ctx, "INSERT INTO "+e.schema+`.outbox (aggregate_type, aggregate_id, event_type, topic, payload)
					VALUES ('order', $1, 'order.created', $2, $3)`, fmt.Sprint("ord_", rand.IntN(1000)), topic, body)
				if err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func collect(ctx context.Context, client *kgo.Client, total int, into *latencyResult) error {
	for len(into.all) < total/4*4 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("void: %d of %d events arrived: %w", len(into.all), total, ctx.Err())
		}
		now := time.Now().UnixNano()
		fetches.EachRecord(func(r *kgo.Record) {
			var body struct{ At int64 }
			if json.Unmarshal(r.Value, &body) == nil {
				into.all = append(into.all, float64(now-body.At)/1e6)
			}
		})
	}
	return nil
}

// idle counts the statements of a dispatcher that has nothing to do.
func idle(ctx context.Context, e *environment, r *report) error {
	s, err := e.store(ctx, postgres.Mark)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	topic, b, err := e.topic(ctx)
	if err != nil {
		return err
	}
	defer e.drop(topic, b)
	fetches := &counter{}
	d, err := e.dispatcher(s, b, fetches)
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Run(work) })
	defer wg.Wait()
	defer stop()
	if err := pause(ctx, 15*time.Second); err != nil { // fall asleep
		return err
	}
	before, cpu := fetches.fetches(), used()
	const length = 20 * time.Second
	if err := pause(ctx, length); err != nil {
		return err
	}
	leases := 3 / core.DefaultLeaseTTL.Seconds()
	rate := float64(fetches.fetches()-before)/length.Seconds() + leases
	r.name("idle_queries_per_s", rate, "/s", fmt.Sprintf("fetches and lease renewals; own CPU %.4f of a core; bar 1",
		(used().cpu-cpu.cpu).Seconds()/length.Seconds()))
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// counter is an observer that counts fetches and keeps how long they took.
type counter struct {
	mu   sync.Mutex
	took []float64 // milliseconds
}

func (c *counter) Observe(event core.Event) {
	if f, ok := event.(core.FetchEvent); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.took = append(c.took, float64(f.Took.Microseconds())/1000)
	}
}

func (c *counter) fetches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.took)
}

// since returns the times of the fetches after the first n.
func (c *counter) since(n int) []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.took[n:])
}
