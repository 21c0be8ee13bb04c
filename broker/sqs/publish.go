package sqs

import (
	"context"
	"fmt"

	"github.com/go-outbox/outbox/core"
)

const maxEntries = 10 // of one request: SQS's limit

// PublishBatch sends to one queue: requests of up to 10 messages of different groups, as many at the same time as
// Config.Concurrency allows. The next message of a group goes out when the one before it was stored.
func (b *Broker) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	c := &call{Broker: b, batch: batch, results: make([]core.Result, len(batch)), done: make(chan *request)}
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		c.endAll(core.OutcomeRejected, err)
		return c.results
	}
	defer leave()
	c.run(ctx)
	return c.results
}

// call is one PublishBatch. Its fields belong to the goroutine that runs it; the requests get what they need and report
// through done.
type call struct {
	*Broker
	batch   []core.Prepared
	results []core.Result
	queue   *queue
	ready   []*lane // those whose next message may be sent
	flying  int     // requests in flight
	done    chan *request
	stop    *core.PublishError // why nothing more is sent
}

// lane is the messages of one group that wait, as indexes into the batch.
type lane struct{ pending []int }

// request is one SendMessageBatch.
type request struct {
	items   []int   // indexes into the batch
	lanes   []*lane // the lane of each item
	results []core.Result
}

func (c *call) run(ctx context.Context) {
	var err error
	if c.queue, err = c.queues.find(ctx, c.batch[0].Destination, c.largest()); err != nil {
		c.endAll(unsentOutcome(ctx), err)
		return
	}
	c.ready = c.lanes()
	starting, cancel := c.lastStart(ctx)
	defer cancel()
	for ended := starting.Done(); ; {
		var slots chan<- struct{} // nil while there is nothing to send
		if len(c.ready) > 0 && c.stop == nil {
			slots = c.slots
		} else if c.flying == 0 {
			break
		}
		select {
		case <-ended:
			ended = nil
			c.stop = noTime(ctx)
		case slots <- struct{}{}:
			if starting.Err() == nil {
				c.begin(ctx, c.next())
			} else {
				<-c.slots
			}
		case r := <-c.done:
			c.flying--
			c.settle(r) // before the slot is free, so that nothing follows a failure
			<-c.slots
		}
	}
	for _, l := range c.ready {
		c.skip(l, c.stop)
	}
}

func (c *call) largest() int {
	largest := 0
	for i := range c.batch {
		largest = max(largest, entryOf(&c.batch[i]).bytes)
	}
	return largest
}

// lanes puts the messages into lanes, in the order of their first messages.
func (c *call) lanes() []*lane {
	byName := make(map[string]*lane, len(c.batch))
	all := make([]*lane, 0, len(c.batch))
	for i := range c.batch {
		name := entryOf(&c.batch[i]).lane
		l := byName[name]
		if l == nil {
			l = &lane{}
			byName[name] = l
			all = append(all, l)
		}
		l.pending = append(l.pending, i)
	}
	return all
}

// next fills a request from the lanes that are ready: with one message of each, or as many in a row as Config.GroupRuns
// allows. A message that does not fit leaves its place to those of other lanes.
func (c *call) next() *request {
	r := &request{}
	bytes := 0
	waiting := make([]*lane, 0, len(c.ready))
	for at, l := range c.ready {
		if len(r.items) == maxEntries {
			waiting = append(waiting, c.ready[at:]...)
			break
		}
		taken := 0
		for _, item := range l.pending {
			size := entryOf(&c.batch[item]).bytes
			full := len(r.items) == maxEntries || len(r.items) > 0 && bytes+size > c.queue.maxRequest
			if full || taken == 1 && !c.config.GroupRuns {
				break
			}
			r.items, r.lanes = append(r.items, item), append(r.lanes, l)
			bytes += size
			taken++
		}
		if taken == 0 {
			waiting = append(waiting, l)
		}
	}
	c.ready = waiting
	return r
}

// begin sends a request in a goroutine that run waits for.
func (c *call) begin(ctx context.Context, r *request) {
	c.flying++
	go func() {
		r.results = c.send(ctx, r.items)
		c.done <- r
	}()
}

// settle takes the results of a request. The lanes that go on become ready again.
func (c *call) settle(r *request) {
	for i, item := range r.items {
		c.results[item] = r.results[i]
	}
	for i, l := range r.lanes {
		if i > 0 && l == r.lanes[i-1] {
			continue
		}
		failed := c.failureOf(l, r)
		switch {
		case failed == nil && len(l.pending) > 0:
			c.ready = append(c.ready, l)
		case failed != nil && failed.Scope >= core.ScopeDestination:
			c.stop = failed
			c.skip(l, failed)
		case failed != nil:
			c.skip(l, earlierFailed(failed))
		}
	}
}

// failureOf takes the messages of the request off their lane, and returns the error of the first that was not
// delivered.
func (c *call) failureOf(l *lane, r *request) (failed *core.PublishError) {
	for i := range r.items {
		if r.lanes[i] != l {
			continue
		}
		l.pending = l.pending[1:]
		if failed == nil && r.results[i].Outcome != core.OutcomeDelivered {
			failed = asPublishError(r.results[i].Err)
		}
	}
	return failed
}

// skip ends a lane.
func (c *call) skip(l *lane, why *core.PublishError) {
	for _, item := range l.pending {
		c.results[item] = core.Result{Outcome: core.OutcomeSkipped, Err: why}
	}
	l.pending = nil
}

// endAll ends a call that has sent nothing.
func (c *call) endAll(outcome core.Outcome, err error) {
	failed := publishError(fmt.Errorf("sqs: queue %q: %w", c.batch[0].Destination, err))
	for i := range c.results {
		c.results[i] = core.Result{Outcome: outcome, Err: failed}
	}
}
