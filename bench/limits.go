package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/store/postgres"
)

// limits measures the two ends on their own: nothing that has to do both can be faster than the slower one.
func limits(ctx context.Context, e *environment, r *report) error {
	var store, broker []float64
	for range e.repeats {
		rate, err := rawStore(ctx, e)
		if err != nil {
			return err
		}
		store = append(store, rate)
		if rate, err = rawPublish(ctx, e); err != nil {
			return err
		}
		broker = append(broker, rate)
	}
	r.add("raw store drain", median(store), "rows/s", "SELECT and UPDATE in batches of 1,000, overlapped, nothing else")
	r.add("raw publish", median(broker), "msg/s", "batches of 500, acknowledged by all, 4 in flight, nothing else")
	r.add("limit", min(median(store), median(broker)), "/s", "the smaller of the two")
	return nil
}

// rawStore reads a backlog by id and marks it, one batch being marked while the next is read.
func rawStore(ctx context.Context, e *environment) (float64, error) {
	s, err := e.store(ctx, postgres.Mark)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	if err := e.fill(ctx, "raw", e.rows, uniform); err != nil {
		return 0, err
	}
	start := time.Now()
	batches := make(chan []int64, 2)
	var mark sync.WaitGroup
	var failed error
	mark.Go(func() {
		for ids := range batches {
			_, err := e.pool.Exec(ctx, "UPDATE "+e.schema+".outbox SET published_at = now() WHERE id = ANY($1)", ids)
			if err != nil {
				failed = err
			}
		}
	})
	for last := int64(0); ; {
		rows, err := e.pool.Query(ctx, `SELECT id, event_id, topic, aggregate_type, aggregate_id, event_type, payload::text, headers
			FROM `+e.schema+`.outbox WHERE published_at IS NULL AND NOT dlq AND id > $1 ORDER BY id LIMIT 1000`, last)
		if err != nil {
			return 0, err
		}
		var ids []int64
		var id int64
		var eventID, topic, typ, aggregate, event, payload string
		var headers []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &eventID, &topic, &typ, &aggregate, &event, &payload, &headers}, func() error {
			ids = append(ids, id)
			return nil
		})
		if err != nil {
			return 0, err
		}
		if len(ids) == 0 {
			break
		}
		last = ids[len(ids)-1]
		batches <- ids
	}
	close(batches)
	mark.Wait()
	return float64(e.rows) / time.Since(start).Seconds(), failed
}

// rawPublish sends ready messages.
func rawPublish(ctx context.Context, e *environment) (float64, error) {
	topic, b, err := e.topic(ctx)
	if err != nil {
		return 0, err
	}
	defer e.drop(topic, b)
	client, err := kgo.NewClient(kgo.SeedBrokers(e.seeds()...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	body := []byte(`{"n": 1, "pad": "` + strings.Repeat("x", payloadBytes-30) + `"}`)
	const size, inFlight = 500, 4
	batches := make(chan int, inFlight)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	start := time.Now()
	for range inFlight {
		wg.Go(func() {
			for first := range batches {
				records := make([]*kgo.Record, size)
				for i := range records {
					records[i] = &kgo.Record{Key: []byte(fmt.Sprint("ord_", (first+i)%1000)), Value: body}
				}
				if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	for first := 0; first < e.rows; first += size {
		batches <- first
	}
	close(batches)
	wg.Wait()
	return float64(e.rows) / time.Since(start).Seconds(), failed
}
