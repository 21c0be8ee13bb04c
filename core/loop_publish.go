package core

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// publisher is the state of publishing.
type publisher struct {
	caps  func(broker string) Capabilities
	calls map[string]int // under way, by broker
	total int
}

func newPublisher(b Broker) publisher {
	p := publisher{calls: map[string]int{}}
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
	l.publish.calls[outlet.Broker]++
	l.publish.total++
	l.call(func(ctx context.Context) func() {
		start := time.Now()
		ctx, cancel := context.WithTimeout(ctx, l.cfg.PublishTimeout)
		defer cancel()
		prepared := make([]Prepared, len(batch))
		for i, e := range batch {
			prepared[i] = e.Value.prepared
		}
		results := l.callBroker(ctx, prepared)
		took := time.Since(start)
		return func() {
			l.publish.calls[outlet.Broker]--
			l.publish.total--
			l.published(outlet, batch, results)
			l.observe(PublishEvent{Broker: outlet.Broker, Destination: outlet.Destination, Batch: prepared, Results: results, Took: took})
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
	for i, e := range batch {
		l.answer(now, e, results[i])
	}
}

// isOfMessage reports whether a result says that the destination answered, and refused only the message.
func isOfMessage(r Result) bool {
	pe := asPublishError(r.Err)
	return r.Outcome == OutcomeRejected && pe != nil && pe.Scope <= ScopeKey && pe.Class != ClassThrottled
}

// answer takes the result of one record. This is the table of classes and scopes:
//
//	scope        throttled           permanent   any other class
//	message      wait, no attempt    park        charge an attempt, park after the last
//	key          wait, no attempt    park        wait, no attempt
//	destination, broker: pause it with everything that goes there; no attempt
func (l *loop) answer(now time.Time, e *entry, r Result) {
	if r.Outcome == OutcomeDelivered {
		e.Gate().Delivered(now, e)
		l.settleLater(e, StatusPublished)
		return
	}
	pe := asPublishError(r.Err)
	if pe == nil {
		pe = &PublishError{Code: "NO_ERROR", Err: errors.New("not delivered, and the broker gave no error")}
	}
	outlet := e.Outlet
	switch {
	case r.Outcome == OutcomeSkipped && pe.Scope <= ScopeKey:
		l.retry(now, e, pe)
	case pe.Scope == ScopeBroker:
		outlet.Destination = ""
		fallthrough
	case pe.Scope == ScopeDestination:
		l.pause(now, outlet, pe, e.Value.record)
		e.Gate().Suspend(now, e, outlet)
	default:
		l.fail(now, e, pe)
	}
}

// fail answers a record whose failure is about itself or its key.
func (l *loop) fail(now time.Time, e *entry, pe *PublishError) {
	attempts := e.Value.record.Attempts + 1
	permanent := pe.Class == ClassPermanent
	if !permanent && (pe.Class == ClassThrottled || pe.Scope == ScopeKey) {
		l.retry(now, e, pe)
		return
	}
	if !e.Gate().Fail(e) {
		return
	}
	e.Value.attempts, e.Value.reason = attempts, reason(pe)
	if permanent || attempts >= l.cfg.Retry.MaxAttempts {
		l.settleLater(e, StatusParked)
		return
	}
	delay := max(pe.RetryAfter, l.cfg.Retry.Backoff.Delay(attempts))
	e.Due = now.Add(delay)
	l.settleLater(e, StatusFailed)
	r := e.Value.record
	l.log.Warn("publish failed, will try again", "event_id", r.EventID, "id", r.ID, "topic", r.Topic,
		"key", r.Key().String(), "attempt", attempts, "retry_in", delay, "error", pe)
	l.observe(RetryEvent{Record: r, Attempts: attempts, RetryIn: delay, Err: pe})
}

// retry answers a record that has to wait without being charged. What lasts is logged ever more rarely.
func (l *loop) retry(now time.Time, e *entry, pe *PublishError) {
	retries := e.Gate().Retries(e) + 1
	delay := max(pe.RetryAfter, l.cfg.Retry.Backoff.Delay(retries))
	if r := e.Value.record; e.Gate().Retry(e, now.Add(delay)) && retries&(retries-1) == 0 {
		l.log.Warn("the key has to wait, no attempt is charged", "event_id", r.EventID, "id", r.ID, "topic", r.Topic,
			"key", r.Key().String(), "times", retries, "retry_in", delay, "error", pe)
	}
}

// asPublishError finds the PublishError in an error, or makes one that says transient trouble of the message.
func asPublishError(err error) *PublishError {
	if err == nil {
		return nil
	}
	var pe *PublishError
	if errors.As(err, &pe) {
		return pe
	}
	return &PublishError{Class: ClassTransient, Scope: ScopeMessage, Err: err}
}
