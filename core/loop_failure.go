package core

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// answer takes the result of one record. This is the table of classes and scopes:
//
//	scope        throttled           permanent   any other class
//	message      wait, no attempt    exhausted   charge an attempt, exhausted after the last
//	key          wait, no attempt    exhausted   wait, no attempt
//	destination, broker: pause it with everything that goes there; no attempt
//
// What becomes of an exhausted record is [Retry].Exhausted.
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
		if l.suspects.convicted(outlet, e.EventID) {
			l.fail(now, e, &PublishError{Code: "BREAKS_" + pe.Code, Err: fmt.Errorf(
				"%s fails whenever this event is published, and works without it: %w", nameOf(outlet), pe)})
			return
		}
		e.Gate().Suspend(now, e, outlet)
	default:
		l.fail(now, e, pe)
	}
}

// fail answers a record whose failure is about itself or its key.
func (l *loop) fail(now time.Time, e *entry, pe *PublishError) {
	r := e.Value.record
	attempts := r.Attempts + 1
	permanent := pe.Class == ClassPermanent
	if !permanent && (pe.Class == ClassThrottled || pe.Scope == ScopeKey) {
		l.retry(now, e, pe)
		return
	}
	if !e.Gate().Fail(now, e) {
		return
	}
	e.Value.attempts, e.Value.reason = attempts, reason(pe)
	retry := l.cfg.retryOf(r.Topic)
	if permanent || attempts >= retry.MaxAttempts {
		l.exhaust(now, e, retry)
		return
	}
	delay := max(pe.RetryAfter, l.delay(retry.Backoff, attempts))
	e.Due = now.Add(delay)
	l.settleLater(e, StatusFailed)
	l.log.Warn("publish failed, will try again", "event_id", r.EventID, "id", r.ID, "topic", r.Topic,
		"key", r.Key().String(), "attempt", attempts, "retry_in", delay, "error", pe)
	l.observe(RetryEvent{Record: r, Attempts: attempts, RetryIn: delay, Err: pe})
}

// retry answers a record that has to wait without being charged. What lasts is logged ever more rarely.
func (l *loop) retry(now time.Time, e *entry, pe *PublishError) {
	r := e.Value.record
	retries := e.Gate().Retries(e) + 1
	delay := max(pe.RetryAfter, l.delay(l.cfg.retryOf(r.Topic).Backoff, retries))
	if e.Gate().Retry(now, e, now.Add(delay)) && retries&(retries-1) == 0 {
		l.log.Warn("the key has to wait, no attempt is charged", "event_id", r.EventID, "id", r.ID, "topic", r.Topic,
			"key", r.Key().String(), "times", retries, "retry_in", delay, "error", pe)
	}
}

// blockedRecheck is after how long a blocked record is read again, in case somebody changed it by SQL. What the store
// offers for it ([DeadLetters]) is told at once.
const blockedRecheck = time.Minute

// exhaust answers a record that is not tried again by itself.
func (l *loop) exhaust(now time.Time, e *entry, retry Retry) {
	switch {
	case retry.Exhausted != ExhaustedPark:
		e.Blocked, e.Due = true, now.Add(blockedRecheck)
		l.settleLater(e, StatusBlocked)
	case retry.DeadLetterSuffix != "":
		l.copies = append(l.copies, l.newCopy(e, retry))
	default:
		l.settleLater(e, StatusParked)
	}
}

// exhausted tells about a record that is exhausted, now that it is written down.
func (l *loop) exhausted(now time.Time, e *entry, status Status) {
	r, job := e.Value.record, e.Value
	what := "parked: the event needs a person"
	if status == StatusBlocked {
		what = "blocked: the key waits for a person"
	}
	l.log.Error(what, "event_id", r.EventID, "id", r.ID, "topic", r.Topic, "key", r.Key().String(),
		"attempts", job.attempts, "reason", job.reason)
	l.suspects.forget(e.EventID)
	if status == StatusParked {
		l.observe(ParkEvent{Record: r, Attempts: job.attempts, Reason: job.reason})
		return
	}
	l.observe(BlockEvent{Record: r, Attempts: job.attempts, Reason: job.reason})
	l.haltFor(now, r, e.Outlet)
}

// The headers of the copy of a dead letter, beside those of the record ([Retry].DeadLetterSuffix).
const (
	// HeaderDeadTopic carries the topic that the record should have gone to.
	HeaderDeadTopic = "outbox_dead_topic"
	// HeaderDeadReason carries the error text of the last failure.
	HeaderDeadReason = "outbox_dead_reason"
	// HeaderDeadAttempts carries the number of failed attempts in decimal.
	HeaderDeadAttempts = "outbox_dead_attempts"
	// HeaderDeadFirstFailedAt and HeaderDeadLastFailedAt carry the times of the first and the last of them, as RFC 3339
	// in UTC.
	HeaderDeadFirstFailedAt = "outbox_dead_first_failed_at"
	HeaderDeadLastFailedAt  = "outbox_dead_last_failed_at"
)

// deadLetterCopy is the copy of a record that has to be published before the record is parked.
type deadLetterCopy struct {
	entry    *entry
	prepared Prepared
	retry    Retry
}

// newCopy prepares the copy. It carries the event's own id, so that a repeat is known as one.
func (l *loop) newCopy(e *entry, retry Retry) deadLetterCopy {
	now := time.Now().UTC()
	record := *e.Value.record
	first := record.FirstFailedAt
	if first.IsZero() {
		first = now
	}
	headers := maps.Clone(record.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers[HeaderDeadTopic] = record.Topic
	headers[HeaderDeadReason] = e.Value.reason
	headers[HeaderDeadAttempts] = strconv.Itoa(e.Value.attempts)
	headers[HeaderDeadFirstFailedAt] = first.UTC().Format(time.RFC3339Nano)
	headers[HeaderDeadLastFailedAt] = now.Format(time.RFC3339Nano)
	record.Headers = headers
	record.route(record.Topic + retry.DeadLetterSuffix)
	prepared, err := l.encode(&record)
	c := deadLetterCopy{entry: e, prepared: prepared, retry: retry}
	if err != nil {
		e.Value.reason = noCopy(e.Value.reason, record.Topic, err)
		c.prepared = Prepared{}
	}
	return c
}

// noCopy is the reason of a dead letter that can never be copied, so that the table alone keeps the event.
func noCopy(why, topic string, err error) string {
	return reason(fmt.Errorf("%s; no copy could be made of it for %s: %w", why, topic, err))
}

// copyDeadLetters begins to publish the copies that wait.
func (l *loop) copyDeadLetters(now time.Time) {
	var wait []deadLetterCopy
	for _, c := range l.copies {
		switch {
		case c.entry.Gate().Dropped():
		case c.prepared.Record == nil:
			l.settleLater(c.entry, StatusParked)
		case l.stopping || !now.Before(l.leases.trusted) || !l.publish.free(c.prepared.Broker):
			wait = append(wait, c)
		default:
			l.publishAlone(c)
		}
	}
	l.copies = wait
}

// publishAlone publishes the copy. The record is parked once the copy is there; until then it is tried again as a whole.
func (l *loop) publishAlone(c deadLetterCopy) {
	outlet := ordering.Outlet{Broker: c.prepared.Broker, Destination: c.prepared.Destination}
	l.send(outlet, []Prepared{c.prepared}, func(results []Result) {
		e := c.entry
		if results[0].Outcome == OutcomeDelivered {
			l.settleLater(e, StatusParked)
			return
		}
		topic := c.prepared.Record.Topic
		err := asPublishError(results[0].Err)
		if err != nil && err.Class == ClassPermanent && err.Scope == ScopeMessage {
			e.Value.reason = noCopy(e.Value.reason, topic, err)
			l.settleLater(e, StatusParked)
			return
		}
		e.Value.reason = reason(fmt.Errorf("dead letter that could not be copied to %s (%w); the event's own failure: %s",
			topic, err, e.Value.reason))
		delay := l.delay(c.retry.Backoff, e.Value.attempts)
		e.Due = time.Now().Add(delay)
		l.settleLater(e, StatusFailed)
		l.log.Error("the event needs a person, but its copy cannot be published; its key waits", "event_id", e.EventID,
			"topic", topic, "key", e.Key.String(), "attempts", e.Value.attempts, "retry_in", delay, "error", err)
	})
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
