package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Script decides what happens to a call. Every PublishBatch asks it once, at the same time as others when calls run at
// the same time. It may be any function; [Calls], [Always] and [On] make the usual ones.
type Script func(Call) Plan

// Call is one PublishBatch as a [Script] sees it.
type Call struct {
	// N counts the calls of the broker from 1.
	N int
	// NthOfDestination counts the calls to the same destination from 1.
	NthOfDestination int
	// Destination is where the batch goes.
	Destination string
	// Batch is what is published. A script must neither change nor keep it.
	Batch []core.Prepared
}

// Calls plays one plan for each call, in order; later calls deliver.
func Calls(plans ...Plan) Script {
	return func(c Call) Plan {
		if c.N > len(plans) {
			return Plan{}
		}
		return plans[c.N-1]
	}
}

// Always plays the same plan for every call.
func Always(plan Plan) Script { return func(Call) Plan { return plan } }

// On plays a script for one destination, which counts its own calls only; other destinations deliver.
func On(destination string, script Script) Script {
	return func(c Call) Plan {
		if c.Destination != destination {
			return Plan{}
		}
		c.N = c.NthOfDestination
		return script(c)
	}
}

// Plan is what happens to one call. The zero Plan delivers everything at once.
type Plan struct {
	// Request runs before anything is stored: latency, or a network that swallows the request. When it returns an
	// error, nothing is stored and the whole batch is OutcomeUnknown. Nil is no wait.
	Request func(context.Context) error
	// Fate is asked for each message, in order. Nil delivers.
	Fate func(index int, m core.Prepared) Fate
	// Reply runs after everything is stored. When it returns an error, what was delivered becomes OutcomeUnknown. Nil
	// is no wait.
	Reply func(context.Context) error
	// Panic, when not nil, is what the call panics with before anything is stored.
	Panic any
}

// Fate is what happens to one message. The zero Fate is stored and delivered.
type Fate struct {
	// Err is the error of its result; nil means stored and delivered, whatever the other fields say.
	Err error
	// Outcome is the outcome of its result when Err is not nil.
	Outcome core.Outcome
	// Stored tells whether it is in the log when Err is not nil.
	Stored Stored
}

// Stored tells what really became of a message that was not reported as delivered.
type Stored uint8

const (
	// NotStored: it never gets into the log.
	NotStored Stored = iota
	// StoredNow: it is in the log before the call returns.
	StoredNow
	// StoredLate: it gets into the log as late as the contract of [core.Broker] allows: when the next call with a
	// message of its key begins, at [Broker].Land, or at Close.
	StoredLate
)

// After returns the plan with a wait before anything is stored; ctx ends it.
func (p Plan) After(d time.Duration) Plan {
	p.Request = sleep(d)
	return p
}

// ReplyAfter returns the plan with a wait between storing and the reply; ctx ends it.
func (p Plan) ReplyAfter(d time.Duration) Plan {
	p.Reply = sleep(d)
	return p
}

// Deliver delivers everything: Deliver().After(d) is a slow broker.
func Deliver() Plan { return Plan{} }

// Reject stores nothing of the messages at these indexes and rejects them with err; without indexes, of all. Other
// messages are delivered, as far as the KeyGuarantee allows.
func Reject(err error, at ...int) Plan {
	return some(at, Fate{Err: err, Outcome: core.OutcomeRejected})
}

// RejectEvents rejects the messages with these event ids, wherever they are.
func RejectEvents(err error, eventIDs ...string) Plan {
	return Plan{Fate: func(_ int, m core.Prepared) Fate {
		if slices.Contains(eventIDs, m.Record.EventID) {
			return Fate{Err: err, Outcome: core.OutcomeRejected}
		}
		return Fate{}
	}}
}

// LoseReply stores messages but loses the answer: OutcomeUnknown. Without indexes it is all of them.
func LoseReply(at ...int) Plan {
	return some(at, Fate{Err: lost("reply"), Outcome: core.OutcomeUnknown, Stored: StoredNow})
}

// LoseRequest does not store messages, and nobody can tell: OutcomeUnknown. Without indexes it is all of them.
func LoseRequest(at ...int) Plan {
	return some(at, Fate{Err: lost("request"), Outcome: core.OutcomeUnknown})
}

// LandLate reports OutcomeUnknown for messages that get into the log later: see [StoredLate]. Without indexes it is
// all of them.
func LandLate(at ...int) Plan {
	return some(at, Fate{Err: lost("reply"), Outcome: core.OutcomeUnknown, Stored: StoredLate})
}

// Throttle rejects everything because the destination is used too fast.
func Throttle(retryAfter time.Duration) Plan {
	return rejectAll(core.PublishError{
		Class: core.ClassThrottled, Scope: core.ScopeDestination, Code: "THROTTLED", RetryAfter: retryAfter,
	}, "is used too fast")
}

// DestinationDown rejects everything because the destination has no leader.
func DestinationDown() Plan {
	return rejectAll(core.PublishError{
		Class: core.ClassUnavailable, Scope: core.ScopeDestination, Code: "DESTINATION_DOWN",
	}, "is unavailable")
}

// BrokerDown rejects everything because the broker cannot be reached. [Server].Stop makes Check fail too.
func BrokerDown() Plan {
	return rejectAll(core.PublishError{
		Class: core.ClassUnavailable, Scope: core.ScopeBroker, Code: "BROKER_DOWN",
	}, "cannot be reached: the broker is down")
}

// Misconfigured rejects everything because the destination does not exist.
func Misconfigured() Plan {
	return rejectAll(core.PublishError{
		Class: core.ClassMisconfigured, Scope: core.ScopeDestination, Code: "UNKNOWN_DESTINATION",
	}, "does not exist: create it")
}

// Panic makes the call panic with v before anything is stored.
func Panic(v any) Plan { return Plan{Panic: v} }

// Hang swallows the request: the call waits until ctx ends, and nothing is stored.
func Hang() Plan { return Hold(nil) }

// HangReply stores everything and then waits until ctx ends.
func HangReply() Plan { return Plan{Reply: hold(nil)} }

// Hold waits before anything is stored until release is closed (or gives a value), or ctx ends. Under testing/synctest
// make the channel inside the bubble.
func Hold(release <-chan struct{}) Plan { return Plan{Request: hold(release)} }

// some gives a fate to the messages at the indexes, or to all when there are none.
func some(at []int, fate Fate) Plan {
	return Plan{Fate: func(index int, _ core.Prepared) Fate {
		if len(at) == 0 || slices.Contains(at, index) {
			return fate
		}
		return Fate{}
	}}
}

// rejectAll rejects everything with a copy of the error that names the destination.
func rejectAll(template core.PublishError, reason string) Plan {
	return Plan{Fate: func(_ int, m core.Prepared) Fate {
		e := template
		e.Err = fmt.Errorf("membroker: destination %q %s", m.Destination, reason)
		return Fate{Err: &e, Outcome: core.OutcomeRejected}
	}}
}

// lost is the error of a call without an answer: it says nothing of the messages, so its scope is the destination.
func lost(what string) error {
	return &core.PublishError{
		Class: core.ClassTransient, Scope: core.ScopeDestination, Code: "NO_REPLY",
		Err: errors.New("membroker: the " + what + " was lost"),
	}
}

func sleep(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func hold(release <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
