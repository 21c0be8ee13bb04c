package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumer reads the topic with a plain Kafka client. All it knows of the outbox is the name of a header.
type consumer struct {
	client *kgo.Client
	topic  string
	tamper func(*kgo.Record, func(*kgo.Record))

	next       map[int32]int64 // the offset to read next, by partition
	deliveries []delivery      // everything that arrived, in the order in which it did
	seen       map[string]bool // the ids of all events among them
}

// delivery is one event as it arrived.
type delivery struct {
	order string
	event string
}

func newConsumer(addresses []string, topic string, tamper func(*kgo.Record, func(*kgo.Record))) (*consumer, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(addresses...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	if tamper == nil {
		tamper = func(record *kgo.Record, deliver func(*kgo.Record)) { deliver(record) }
	}
	return &consumer{client: client, topic: topic, tamper: tamper, next: map[int32]int64{}, seen: map[string]bool{}}, nil
}

func (c *consumer) close() { c.client.Close() }

// deliver is the consumer's handler: it notes the event. A real one would do its work here, once per event id.
func (c *consumer) deliver(record *kgo.Record) {
	event := ""
	for _, header := range record.Headers {
		if header.Key == "event_id" {
			event = string(header.Value)
		}
	}
	c.deliveries = append(c.deliveries, delivery{order: string(record.Key), event: event})
	c.seen[event] = true
}

// poll takes what has arrived, or returns after a short while without.
func (c *consumer) poll(ctx context.Context) (arrived bool, err error) {
	wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	fetches := c.client.PollFetches(wait)
	for _, fault := range fetches.Errors() {
		if !errors.Is(fault.Err, context.DeadlineExceeded) {
			return false, fmt.Errorf("consume %s: %w", c.topic, fault.Err)
		}
	}
	fetches.EachRecord(func(record *kgo.Record) {
		c.next[record.Partition] = record.Offset + 1
		c.tamper(record, c.deliver)
	})
	return fetches.NumRecords() > 0, ctx.Err()
}

// readAlong reads until the service has closed and every event in its books has arrived, and returns the books. When
// nothing arrives any more for as long as patience it returns too: what is missing then is lost.
func (c *consumer) readAlong(ctx context.Context, closing <-chan error,
	readBooks func(context.Context) (map[string][]string, error), patience time.Duration, show func(events int),
) (books map[string][]string, err error) {
	var outstanding []string
	for last := time.Now(); ; show(len(c.seen)) {
		arrived, err := c.poll(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case err := <-closing:
			if err != nil {
				return nil, err
			}
			if books, err = readBooks(ctx); err != nil {
				return nil, err
			}
			for _, events := range books {
				outstanding = append(outstanding, events...)
			}
		default:
		}
		for len(outstanding) > 0 && c.seen[outstanding[0]] {
			outstanding = outstanding[1:]
		}
		if books != nil && len(outstanding) == 0 {
			return books, nil
		}
		switch {
		case arrived || books == nil:
			last = time.Now()
		case time.Since(last) > patience:
			return books, nil
		}
	}
}

// readToEnd reads what is left in the topic, which nobody writes to any more.
func (c *consumer) readToEnd(ctx context.Context) error {
	ends, err := kadm.NewClient(c.client).ListEndOffsets(ctx, c.topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return fmt.Errorf("find the end of %s: %w", c.topic, err)
	}
	atEnd := func() bool {
		read := true
		ends.Each(func(end kadm.ListedOffset) { read = read && c.next[end.Partition] >= end.Offset })
		return read
	}
	for !atEnd() {
		if _, err := c.poll(ctx); err != nil {
			return err
		}
	}
	return nil
}
