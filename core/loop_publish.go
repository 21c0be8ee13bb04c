package core

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// publisher is the state of publishing.
type publisher struct {
	caps  func(broker string) Capabilities
	calls map[string]int // under way, by broker
	// last numbers the calls, underWay has the numbers of those that have not returned.
	last     uint64
	underWay map[uint64]bool
}

func newPublisher(b Broker) publisher {
	p := publisher{calls: map[string]int{}, underWay: map[uint64]bool{}}
	if multi, ok := b.(Multi); ok {
		p.caps = multi.CapabilitiesOf
		return p
	}
	caps := b.Capabilities()
	p.caps = func(string) Capabilities { return caps }
	return p
}

// free reports whether the broker may get another call.
func (p *publisher) free(broker string) bool {
	return p.calls[broker] < max(p.caps(broker).MaxInFlight, 1)
}

// returned reports whether all calls up to a number have returned.
func (p *publisher) returned(number uint64) bool {
	for n := range p.underWay {
		if n <= number {
			return false
		}
	}
	return true
}

// publishReady begins as many publish calls as there are records ready and calls allowed. None begins when our leases
// may have expired: somebody else may be publishing the same keys.
func (l *loop) publishReady(now time.Time) {
	for !l.stopping && now.Before(l.leases.trusted) {
		outlet, ok := l.queue.Next(l.mayPublish)
		if !ok {
			return
		}
		caps := l.publish.caps(outlet.Broker)
		limit := ordering.Limit{
			Records: l.cfg.PublishSize, Bytes: caps.MaxBatchBytes, Runs: caps.KeyGuarantee == PrefixPerKey,
		}
		if caps.MaxBatch > 0 {
			limit.Records = min(limit.Records, caps.MaxBatch)
		}
		batch := l.queue.Take(outlet, limit)
		batch = l.takeUnprepared(now, batch)
		if len(batch) == 0 {
			continue
		}
		for _, c := range l.trialsOf(outlet) { // their gates let nothing else out
			c.publishing = true
		}
		l.publishBatch(outlet, batch)
	}
}

// takeUnprepared answers the records that could not be prepared, and returns the others.
func (l *loop) takeUnprepared(now time.Time, batch []*entry) []*entry {
	good := batch[:0]
	for _, e := range batch {
		if e.Value.err != nil {
			l.fail(now, e, asPublishError(e.Value.err))
		} else {
			good = append(good, e)
		}
	}
	return good
}

// publishBatch publishes the records in one call.
func (l *loop) publishBatch(outlet ordering.Outlet, batch []*entry) {
	prepared := make([]Prepared, len(batch))
	for i, e := range batch {
		prepared[i] = e.Value.prepared
	}
	l.send(outlet, prepared, func(results []Result) { l.published(outlet, batch, results) })
}

// send makes one call of the broker and hands its results to the loop.
func (l *loop) send(outlet ordering.Outlet, batch []Prepared, then func([]Result)) {
	l.publish.calls[outlet.Broker]++
	l.publish.last++
	number := l.publish.last
	l.publish.underWay[number] = true
	l.call(func(ctx context.Context) func() {
		start := time.Now()
		ctx, cancel := context.WithTimeout(ctx, l.cfg.PublishTimeout)
		defer cancel()
		results := l.callBroker(ctx, batch)
		took := time.Since(start)
		return func() {
			l.publish.calls[outlet.Broker]--
			delete(l.publish.underWay, number)
			then(results)
			l.observe(PublishEvent{Broker: outlet.Broker, Destination: outlet.Destination, Batch: batch, Results: results, Took: took})
		}
	})
}

// callBroker calls the broker and makes sure that there is one result for each message, also when it panics.
func (l *loop) callBroker(ctx context.Context, batch []Prepared) (results []Result) {
	unknown := func(code string, err error) []Result {
		all := make([]Result, len(batch))
		for i := range all {
			all[i] = Result{Err: &PublishError{Class: ClassTransient, Scope: ScopeMessage, Code: code, Err: err}}
		}
		return all
	}
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("the broker panicked", "destination", batch[0].Destination, "messages", len(batch), "panic", p, "stack", string(debug.Stack()))
			results = unknown("PANIC", fmt.Errorf("publish panicked: %v", p))
		}
	}()
	results = l.broker.PublishBatch(ctx, batch)
	if len(results) != len(batch) {
		l.log.Error("the broker returned another number of results than it got messages, none of them counts",
			"destination", batch[0].Destination, "messages", len(batch), "results", len(results))
		return unknown("WRONG_RESULTS", fmt.Errorf("%d results for %d messages", len(results), len(batch)))
	}
	return results
}

// published takes the results of one call.
func (l *loop) published(outlet ordering.Outlet, batch []*entry, results []Result) {
	now := time.Now()
	works := false
	for i := range batch {
		works = works || results[i].Outcome == OutcomeDelivered || isOfMessage(results[i])
	}
	l.endTrial(outlet, works)
	l.suspects.took(outlet, batch, results)
	for i, e := range batch {
		l.answer(now, e, results[i])
	}
}

// isOfMessage reports whether a result says that the destination answered, and refused only the message.
func isOfMessage(r Result) bool {
	pe := asPublishError(r.Err)
	return r.Outcome == OutcomeRejected && pe != nil && pe.Scope <= ScopeKey && pe.Class != ClassThrottled
}
