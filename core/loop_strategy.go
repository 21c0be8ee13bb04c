package core

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// agreement is what is known of a destination's ordering strategy: whether the one that the store remembers for it is
// the broker's. Without agreement nothing is published there, because a key might go another way than its earlier
// events.
type agreement struct {
	checking bool // being compared, or brought about; nothing is published meanwhile
	agreed   bool
	since    time.Time // when checking began: no later call to the destination has begun
	next     time.Time // until when the agreement holds: then it is compared again
}

// agreedOn reports whether records may go to the outlet, and begins to find out when that is not known. An agreement
// holds for the time of a lease, so that a change that is made in the store has reached everybody after that.
func (l *loop) agreedOn(now time.Time, outlet ordering.Outlet) bool {
	_, tells := l.broker.(Fingerprinter)
	_, keeps := l.store.(FingerprintKeeper)
	if !tells || !keeps || outlet.Destination == "" {
		return true
	}
	a := l.agreements[outlet]
	if a == nil {
		a = &agreement{}
		l.agreements[outlet] = a
	}
	if !a.checking && !now.Before(a.next) {
		a.checking, a.agreed, a.since = true, false, now
		l.compare(outlet, a, 0)
	}
	return a.agreed // comparing again takes milliseconds
}

// compare compares the fingerprints of the broker and the store, after a wait.
func (l *loop) compare(outlet ordering.Outlet, a *agreement, wait time.Duration) {
	broker, store := l.broker.(Fingerprinter), l.store.(FingerprintKeeper) //nolint:errcheck // agreedOn has looked
	l.later(wait, func(ctx context.Context) func() {
		began := time.Now()
		ours, err := broker.Fingerprint(ctx, outlet.Broker, outlet.Destination)
		if err != nil {
			return func() { l.disagree(outlet, a, asPublishError(err)) }
		}
		theirs, err := store.Fingerprint(ctx, outlet.Broker, outlet.Destination, ours)
		return func() {
			a.next = began.Add(l.cfg.LeaseTTL)
			l.compared(outlet, a, ours, theirs, err)
		}
	})
}

// later calls f like [loop.call], after a wait and with the timeout of a publish call.
func (l *loop) later(wait time.Duration, f func(context.Context) func()) {
	l.call(func(ctx context.Context) func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return func() {}
		}
		ctx, cancel := context.WithTimeout(ctx, l.cfg.PublishTimeout)
		defer cancel()
		return f(ctx)
	})
}

// compared takes the fingerprint that the store remembers.
func (l *loop) compared(outlet ordering.Outlet, a *agreement, ours, theirs string, err error) {
	if failures := l.troubles.note(opStrategy+nameOf(outlet), err); err != nil {
		l.compare(outlet, a, l.delay(l.cfg.Outage, failures))
		return
	}
	if ours == theirs {
		a.checking, a.agreed = false, true
		return
	}
	if s, ok := ParseSwitching(theirs); ok {
		l.disagree(outlet, a, &PublishError{
			Class: ClassUnavailable, Scope: ScopeDestination, Code: "SWITCHING", Err: fmt.Errorf(
				"resharding in progress: %s goes over from the ordering strategy %q to %q; nothing is published there until "+
					"that is done, and then it goes on by itself; if it was broken off, run it again", nameOf(outlet), s.From, s.To),
		})
		return
	}
	l.adopt(outlet, a, ours, theirs)
}

// adopt lets the broker go over to the strategy that the store remembers, if it can.
func (l *loop) adopt(outlet ordering.Outlet, a *agreement, ours, theirs string) {
	adopter, ok := l.broker.(Adopter)
	if !ok {
		l.refuse(outlet, a, ours, theirs)
		return
	}
	// Calls are counted by broker. None to this outlet has begun since, so that those of others do not hold us up.
	if wait := time.Until(a.since.Add(l.cfg.PublishTimeout)); l.publish.calls[outlet.Broker] > 0 && wait > 0 {
		l.compare(outlet, a, wait)
		return
	}
	l.later(0, func(ctx context.Context) func() {
		adopted, err := adopter.Adopt(ctx, outlet.Broker, outlet.Destination, theirs)
		at := time.Now()
		return func() {
			switch {
			case err != nil:
				l.disagree(outlet, a, asPublishError(err))
			case !adopted:
				l.refuse(outlet, a, ours, theirs)
			default:
				l.log.Info("goes over to the ordering strategy that the store has", "what", nameOf(outlet), "from", ours, "to", theirs)
				l.prepareAnew(outlet, a, at)
			}
		}
	})
}

// prepareAnew lets go of every record for the outlet that may have been prepared before the broker went over to another
// strategy, so that it is fetched and prepared again, and ends the checking.
func (l *loop) prepareAnew(outlet ordering.Outlet, a *agreement, adopted time.Time) {
	if l.fetcher.busy && !l.fetcher.began.After(adopted) { // it may bring more of them
		l.later(l.cfg.PollMin, func(context.Context) func() {
			return func() { l.prepareAnew(outlet, a, adopted) }
		})
		return
	}
	now := time.Now()
	l.pauseGates(now, outlet)
	for _, c := range l.trialsOf(outlet) {
		if !c.publishing { // its record may be among those
			c.until = now
		}
	}
	if c := l.circuits[outlet]; c == nil || !c.halted { // that one ends with the blocked event
		l.resume(now, outlet, false)
	}
	a.checking, a.agreed = false, true
}

// refuse pauses the outlet until a person has decided which strategy is the right one.
func (l *loop) refuse(outlet ordering.Outlet, a *agreement, ours, theirs string) {
	l.disagree(outlet, a, &PublishError{
		Class: ClassMisconfigured, Scope: ScopeDestination, Code: "STRATEGY_CHANGED", Err: fmt.Errorf(
			"%s was published with the ordering strategy %q until now, this dispatcher is configured with %q: a key would go "+
				"another way than its earlier events; let the consumers finish, then accept the new strategy (outbox strategy accept), "+
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
