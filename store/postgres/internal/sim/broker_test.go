package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// broker is a process's client of the broker: membroker behind a network.
type broker struct{ p *process }

var _ core.Broker = (*broker)(nil)

func (b *broker) Capabilities() core.Capabilities { return b.p.broker.Capabilities() }

func (b *broker) Prepare(r *core.Record) (core.Prepared, error) { return b.p.broker.Prepare(r) }

func (b *broker) Check(ctx context.Context) error { return b.p.broker.Check(ctx) }

// Close does nothing: the world looks at what is late.
func (b *broker) Close(context.Context) error { return nil }

func (b *broker) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	for _, m := range batch {
		switch {
		case !b.p.mayPublish():
			b.misuse(m.Record.EventID, "its leases may have expired")
		case m.Record.Delay == core.Forever:
			b.misuse(m.Record.EventID, "that is blocked")
		}
	}
	results := b.publish(ctx, batch)
	if len(batch) == 1 && isOfOutlet(results[0].Err) {
		event := batch[0].Record.EventID
		b.p.w.after(0, b.p.name+" fails with "+event, func() { b.p.w.ledger.events[event].broke++ })
	}
	return results
}

// misuse notes that a call should not have been made.
func (b *broker) misuse(event, because string) {
	b.p.w.after(0, b.p.name+" misuse "+event, func() {
		b.p.w.ledger.bad("%s publishes %s: %s", b.p.name, event, because)
	})
}

func (b *broker) publish(ctx context.Context, batch []core.Prepared) []core.Result {
	var results []core.Result
	var panics bool
	subject := batch[0].Destination + " " + batch[0].Record.EventID
	err := b.p.call(ctx, opPublish, subject, func(c *call) { //nolint:contextcheck // it arrives, whatever the client does
		if results, panics = b.serve(c, batch); results != nil {
			c.reply(nil)
		}
	})
	switch {
	case err != nil:
		return slices.Repeat([]core.Result{{Err: b.p.w.trouble("NO_ANSWER", core.ScopeDestination, err)}}, len(batch))
	case panics:
		panic("the client is broken")
	}
	return results
}

// serve is the moment at which the request reaches the broker. Without results no reply ever comes.
func (b *broker) serve(c *call, batch []core.Prepared) (results []core.Result, panics bool) {
	w := b.p.w
	script, kind := w.script(c, batch)
	if kind != "" {
		w.fault(kind)
	}
	b.p.broker.SetScript(func(membroker.Call) membroker.Plan { return membroker.Plan{Fate: w.prefix(script)} })
	w.landing(func() { results = b.p.broker.PublishBatch(context.Background(), batch) })
	for i := range results {
		w.say("%s: %s gets %s (%v)", c.name, batch[i].Record.EventID, results[i].Outcome, results[i].Err)
	}
	switch kind {
	case faultHang, faultHangReply:
		return nil, false
	case faultPanic:
		for _, m := range batch {
			w.ledger.failed(m.Record.EventID)
		}
		return results, true
	}
	return results, false
}

// isOfOutlet reports whether an error says nothing of the message.
func isOfOutlet(err error) bool {
	var pe *core.PublishError
	return errors.As(err, &pe) && pe.Scope >= core.ScopeDestination
}

// What goes wrong with a publish call.
const (
	faultBroker      = "broker down"
	faultDestination = "destination down"
	faultThrottled   = "throttled"
	faultBreaks      = "event breaks its call"
	faultHang        = "publish request swallowed"
	faultHangReply   = "publish answer swallowed"
	faultPanic       = "publish panics"
	faultLoseReply   = "publish answer lost"
	faultLoseRequest = "publish request lost"
	faultLate        = "publish lands late"
	faultRefused     = "message refused"
	faultPoison      = "poison refused"
)

type fates = func(int, core.Prepared) membroker.Fate

// script decides what becomes of a call.
func (w *world) script(c *call, batch []core.Prepared) (script fates, kind string) {
	destination, now := batch[0].Destination, time.Now()
	refuse := func(kind string, class core.Class, scope core.Scope) (fates, string) {
		pe := &core.PublishError{Class: class, Scope: scope, Code: "REFUSED", Err: errors.New(kind)}
		return always(membroker.Fate{Err: pe, Outcome: core.OutcomeRejected}), kind
	}
	switch {
	case now.Before(w.outages[""]):
		return refuse(faultBroker, core.ClassUnavailable, core.ScopeBroker)
	case now.Before(w.outages[destination]):
		return refuse(faultDestination, core.ClassUnavailable, core.ScopeDestination)
	case now.Before(w.throttled[destination]):
		return refuse(faultThrottled, core.ClassThrottled, core.ScopeDestination)
	}
	for _, m := range batch {
		if w.poisonOf(&m).breaks() {
			w.ledger.failed(m.Record.EventID)
			return refuse(faultBreaks, core.ClassUnavailable, core.ScopeBroker)
		}
	}
	if !w.chance(c.r, w.plan.faulty) {
		return w.poisoned(nil)
	}
	return w.mishap(c, len(batch))
}

// mishap is something that happens to a single call.
func (w *world) mishap(c *call, size int) (fates, string) {
	lost := func(stored membroker.Stored) membroker.Fate {
		return membroker.Fate{
			Err: w.trouble("NO_REPLY", core.ScopeDestination, errLost), Outcome: core.OutcomeUnknown, Stored: stored,
		}
	}
	at := c.r.IntN(size + 1) // from there on
	from := func(f membroker.Fate) fates {
		return func(i int, _ core.Prepared) membroker.Fate {
			if i >= at || at == size {
				return f
			}
			return membroker.Fate{}
		}
	}
	switch n := c.r.IntN(16); {
	case n < 3:
		script, _ := w.poisoned(from(lost(membroker.StoredNow)))
		return script, faultLoseReply
	case n < 6:
		script, _ := w.poisoned(from(lost(membroker.NotStored)))
		return script, faultLoseRequest
	case n < 9:
		script, _ := w.poisoned(from(lost(membroker.StoredLate)))
		return script, faultLate
	case n < 11:
		return always(lost(membroker.NotStored)), faultHang
	case n < 12:
		return always(membroker.Fate{}), faultHangReply
	case n < 13:
		return always(lost(membroker.NotStored)), faultPanic
	default:
		return w.refusing(at), faultRefused
	}
}

// prefix keeps what lands late behind what is never stored of its key from landing at all.
func (w *world) prefix(script fates) fates {
	failed := map[ordering.Key]bool{}
	return func(i int, m core.Prepared) membroker.Fate {
		f := script(i, m)
		if f.Stored == membroker.StoredLate && failed[m.Record.Key()] && w.plan.guarantee == core.PrefixPerKey {
			f.Stored = membroker.NotStored
		}
		failed[m.Record.Key()] = failed[m.Record.Key()] || f.Err != nil && f.Stored == membroker.NotStored
		return f
	}
}

// refusing refuses one message for a passing reason of its own.
func (w *world) refusing(at int) fates {
	return func(i int, m core.Prepared) membroker.Fate {
		if i != at {
			return membroker.Fate{}
		}
		w.ledger.failed(m.Record.EventID)
		return membroker.Fate{Err: w.trouble("BUSY", core.ScopeMessage, errBusy), Outcome: core.OutcomeRejected}
	}
}

// poisoned refuses the events that are poison.
func (w *world) poisoned(otherwise fates) (script fates, kind string) {
	return func(i int, m core.Prepared) membroker.Fate {
		if p := w.poisonOf(&m); p != nil && p.left > 0 {
			p.left--
			w.fault(faultPoison)
			w.ledger.failed(m.Record.EventID)
			pe := w.trouble("POISON", core.ScopeMessage, fmt.Errorf("event %s", m.Record.EventID))
			pe.Class = p.class
			return membroker.Fate{Err: pe, Outcome: core.OutcomeRejected}
		}
		if otherwise == nil {
			return membroker.Fate{}
		}
		return otherwise(i, m)
	}, ""
}

func always(f membroker.Fate) fates { return func(int, core.Prepared) membroker.Fate { return f } }

func (w *world) trouble(code string, scope core.Scope, err error) *core.PublishError {
	return &core.PublishError{Class: core.ClassTransient, Scope: scope, Code: code, Err: err}
}

// poison is what is wrong with an event.
type poison struct {
	left    int // how often it is refused; a large number for ever
	class   core.Class
	breaker bool
}

// poisonOf returns what is wrong with a message, or nil. Copies of dead letters are always accepted.
func (w *world) poisonOf(m *core.Prepared) *poison {
	if strings.HasSuffix(m.Destination, deadSuffix) {
		return nil
	}
	return w.poison[m.Record.EventID]
}

func (p *poison) breaks() bool { return p != nil && p.breaker }
