package core

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// strategyRecheck is after how long a destination's fingerprint is compared again: it may change while we run, as the
// number of partitions of a Kafka topic does.
const strategyRecheck = time.Minute

// agreement is what is known of a destination's ordering strategy: whether the one that the store remembers for it is
// the broker's. Without agreement nothing is published there, because a key might go another way than its earlier
// events.
type agreement struct {
	checking bool
	agreed   bool
	next     time.Time // when to compare again
}

// agreedOn reports whether records may go to the outlet, and begins to find out when that is not known.
func (l *loop) agreedOn(now time.Time, outlet ordering.Outlet) bool {
	broker, ok := l.broker.(Fingerprinter)
	if !ok || outlet.Destination == "" {
		return true
	}
	store, ok := l.store.(FingerprintKeeper)
	if !ok {
		return true
	}
	a := l.agreements[outlet]
	if a == nil {
		a = &agreement{}
		l.agreements[outlet] = a
	}
	if !a.checking && !now.Before(a.next) {
		a.checking = true
		l.call(func(ctx context.Context) func() {
			ctx, cancel := context.WithTimeout(ctx, l.cfg.PublishTimeout)
			defer cancel()
			ours, err := broker.Fingerprint(ctx, outlet.Broker, outlet.Destination)
			if err != nil {
				return func() { l.disagree(outlet, a, asPublishError(err)) }
			}
			theirs, err := store.Fingerprint(ctx, outlet.Broker, outlet.Destination, ours)
			return func() { l.compared(outlet, a, ours, theirs, err) }
		})
	}
	return a.agreed && !a.checking // comparing again takes milliseconds once a minute
}

// compared takes the fingerprint that the store remembers.
func (l *loop) compared(outlet ordering.Outlet, a *agreement, ours, theirs string, err error) {
	now := time.Now()
	if failures := l.troubles.note(opStrategy+nameOf(outlet), err); err != nil {
		a.checking, a.next = false, now.Add(l.cfg.Outage.Delay(failures))
		return
	}
	if ours == theirs {
		a.checking, a.agreed, a.next = false, true, now.Add(strategyRecheck)
		return
	}
	l.disagree(outlet, a, &PublishError{
		Class: ClassMisconfigured, Scope: ScopeDestination, Code: "STRATEGY_CHANGED", Err: fmt.Errorf(
			"%s was published with the ordering strategy %q until now, this dispatcher is configured with %q: a key would go "+
				"another way than its earlier events; let the consumers finish, then accept the new strategy in the store, "+
				"or restore the old configuration", nameOf(outlet), theirs, ours),
	})
}

// disagree pauses the outlet; its circuit leads back here before anything is published.
func (l *loop) disagree(outlet ordering.Outlet, a *agreement, pe *PublishError) {
	delete(l.agreements, outlet)
	a.checking = false
	if pe.Scope == ScopeBroker {
		outlet.Destination = ""
	}
	if c := l.circuits[outlet]; c != nil && c.halfOpen {
		c.publishing = false
	}
	l.pause(time.Now(), outlet, pe, nil)
}
