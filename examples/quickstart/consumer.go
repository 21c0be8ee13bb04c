package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// consumer notes what a source hands over.
type consumer struct {
	source   source
	patience time.Duration // how long a next event may take before what is missing counts as lost
	tamper   func(delivery, func(delivery))

	arrivals chan delivery
	ended    chan error // has the outcome of the source once that has ended
	stop     func()     // ends the source and waits

	deliveries []delivery      // everything that arrived, in the order in which it did
	seen       map[string]bool // the ids of all events among them
}

// startConsumer lets the source consume in the background, until stop.
func startConsumer(
	ctx context.Context, from source, patience time.Duration, tamper func(delivery, func(delivery)),
) *consumer {
	if tamper == nil {
		tamper = func(d delivery, deliver func(delivery)) { deliver(d) }
	}
	c := &consumer{
		source: from, patience: patience, tamper: tamper,
		arrivals: make(chan delivery), ended: make(chan error, 1), seen: map[string]bool{},
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.ended <- from.consume(ctx, c.handle)
	}()
	c.stop = func() {
		cancel()
		<-done
	}
	return c
}

// handle is called for each event, by several goroutines for different orders; arrivals puts them in a row.
func (c *consumer) handle(ctx context.Context, d delivery) error {
	select {
	case c.arrivals <- d:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// deliver notes an event. A real consumer would do its work here, once per event id.
func (c *consumer) deliver(d delivery) {
	c.deliveries = append(c.deliveries, d)
	c.seen[d.event] = true
}

// take waits for the next event, up to a limit.
func (c *consumer) take(ctx context.Context, limit time.Duration) (arrived bool, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case d := <-c.arrivals:
		c.tamper(d, c.deliver)
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case err := <-c.ended:
		return false, errors.Join(errors.New("the consumer has ended too early"), err)
	}
}

// readAlong reads until the service has closed and every event in its books has arrived, and returns the books. When
// nothing arrives any more for as long as its patience lasts it returns too: what is missing then is lost.
func (c *consumer) readAlong(ctx context.Context, closing <-chan error,
	readBooks func(context.Context) (map[string][]string, error), show func(events int),
) (books map[string][]string, err error) {
	var outstanding []string
	for last := time.Now(); ; show(len(c.seen)) {
		arrived, err := c.take(ctx, 100*time.Millisecond)
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
		case time.Since(last) > c.patience:
			return books, nil
		}
	}
}

// readToEnd reads what is left in the topic, which nobody writes to any more: until the broker has had nothing more to
// hand over, and what was on its way then has come.
func (c *consumer) readToEnd(ctx context.Context) error {
	for began := time.Now(); ; {
		left, err := c.source.left(ctx)
		for arrived := true; arrived; {
			var ended error
			if arrived, ended = c.take(ctx, 500*time.Millisecond); ended != nil {
				return ended
			}
		}
		switch {
		case err == nil && left == 0:
			return nil
		case time.Since(began) <= c.patience: // try again
		case err != nil:
			return err
		default:
			return fmt.Errorf("%d events are in the topic that do not arrive", left)
		}
	}
}
