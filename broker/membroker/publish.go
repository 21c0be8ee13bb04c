package membroker

import (
	"errors"
	"fmt"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// enter counts a call in, lands what is late of its keys and looks for misuse.
func (b *Broker) enter(batch []core.Prepared) (Call, Script, error) {
	var destination string
	if len(batch) > 0 {
		destination = batch[0].Destination
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return Call{}, nil, &core.PublishError{
			Class: core.ClassUnavailable, Scope: core.ScopeBroker, Code: "CLOSED",
			Err: fmt.Errorf("membroker: publish to %q: %w", destination, core.ErrClosed),
		}
	}
	b.calls++
	b.callsTo[destination]++
	b.running++
	if !b.config.Discard {
		b.inspect(batch)
		for i := range batch {
			key := batch[i].Record.Key()
			b.busy[key]++
			b.land(key)
		}
	}
	call := Call{N: b.calls, NthOfDestination: b.callsTo[destination], Destination: destination, Batch: batch}
	return call, b.script, nil
}

// leave counts a call out.
func (b *Broker) leave(batch []core.Prepared) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.config.Discard {
		for i := range batch {
			key := batch[i].Record.Key()
			if b.busy[key]--; b.busy[key] == 0 {
				delete(b.busy, key)
			}
		}
	}
	b.running--
	if b.closed && b.running == 0 {
		close(b.idle)
	}
}

// land stores what is late of a key. The caller holds the lock.
func (b *Broker) land(key ordering.Key) {
	if len(b.late) == 0 || b.late[key] == nil {
		return
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	for _, m := range b.late[key] {
		b.server.append(m)
	}
	delete(b.late, key)
}

// keyState is what the messages of a key so far mean for its next one under PrefixPerKey.
type keyState uint8

const (
	// The zero state: all are stored and delivered.
	_ keyState = iota
	// doubtful: all are stored, but not all are reported as delivered.
	doubtful
	// broken: not all are stored, so nothing more may be.
	broken
)

// store decides each message's fate, keeps the promise of the KeyGuarantee and stores.
func (b *Broker) store(batch []core.Prepared, fate func(int, core.Prepared) Fate) []core.Result {
	results := make([]core.Result, len(batch))
	if len(batch) == 0 {
		return results
	}
	if refusal := b.refusal(batch[0].Destination); refusal != nil {
		fate = refusal
	}
	if b.config.Discard && fate == nil {
		for i := range results {
			results[i].Outcome = core.OutcomeDelivered
		}
		b.server.discard(len(batch))
		return results
	}
	var states map[ordering.Key]keyState
	if b.config.KeyGuarantee == core.PrefixPerKey {
		states = make(map[ordering.Key]keyState)
	}
	for i, m := range batch {
		f := Fate{Outcome: core.OutcomeDelivered}
		if fate != nil {
			f = normal(fate(i, m))
		}
		if states != nil {
			key := m.Record.Key()
			f, states[key] = f.following(states[key])
		}
		b.keep(m, f)
		results[i] = core.Result{Outcome: f.Outcome, Err: f.Err}
	}
	return results
}

// refusal is the fate of everything while the server is stopped or the destination does not exist.
func (b *Broker) refusal(destination string) func(int, core.Prepared) Fate {
	switch {
	case b.server.isStopped():
		return BrokerDown().Fate
	case !b.server.Exists(destination):
		return Misconfigured().Fate
	}
	return nil
}

// normal spells out a fate that is delivered.
func normal(f Fate) Fate {
	if f.Err == nil {
		return Fate{Outcome: core.OutcomeDelivered}
	}
	if f.Outcome == core.OutcomeDelivered {
		f.Outcome = core.OutcomeUnknown // an error is never a success
	}
	return f
}

// following is the fate that a message really has after the earlier ones of its key, and the state of the key then.
func (f Fate) following(state keyState) (Fate, keyState) {
	storing := f.Err == nil || f.Stored == StoredNow
	switch {
	case state == broken && storing:
		return Fate{Outcome: core.OutcomeSkipped, Err: skipped()}, broken
	case state == doubtful && f.Err == nil:
		// A success behind an unknown one would be a gap in the results.
		return Fate{Outcome: core.OutcomeUnknown, Err: lost("reply"), Stored: StoredNow}, doubtful
	case !storing:
		return f, broken
	case f.Err != nil:
		return f, doubtful
	}
	return f, state
}

// keep stores a message now, later or not at all.
func (b *Broker) keep(m core.Prepared, f Fate) {
	if b.config.Discard {
		if f.Err == nil || f.Stored != NotStored {
			b.server.discard(1)
		}
		return
	}
	message, ok := m.Native.(*Message)
	switch {
	case !ok:
		b.report(fmt.Errorf("event %q was not prepared by this broker", m.Record.EventID))
	case f.Err == nil || f.Stored == StoredNow:
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		b.server.append(message)
	case f.Stored == StoredLate:
		b.mu.Lock()
		defer b.mu.Unlock()
		key := m.Record.Key()
		b.late[key] = append(b.late[key], message)
	}
}

// same gives every message the same result.
func same(batch []core.Prepared, r core.Result) []core.Result {
	results := make([]core.Result, len(batch))
	for i := range results {
		results[i] = r
	}
	return results
}

// invalid is an error that Prepare returns.
func invalid(code string, err error) error {
	return &core.PublishError{Class: core.ClassPermanent, Scope: core.ScopeMessage, Code: code, Err: err}
}

// interrupted is the error of a call that ctx ended. That is no fault of its messages.
func interrupted(err error) error {
	return &core.PublishError{
		Class: core.ClassTransient, Scope: core.ScopeDestination, Code: "INTERRUPTED",
		Err: fmt.Errorf("membroker: publish: %w", err),
	}
}

// skipped is the error of a message that was not tried.
func skipped() error {
	return &core.PublishError{
		Class: core.ClassTransient, Scope: core.ScopeKey, Code: "SKIPPED",
		Err: errors.New("membroker: an earlier message of the key was not delivered"),
	}
}
