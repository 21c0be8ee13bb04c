package brokertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
)

// storm publishes a few keys as a dispatcher does, each from its first message that was not delivered, while seeded
// faults hit the calls. After each call the results must be true and no key may have a gap.
type storm struct {
	*fixture
	seed   uint64
	dice   *rand.Rand
	perKey int // messages of a key in a call
	keys   [][]*core.Record
	done   []int           // how many messages of each key are delivered
	doubt  map[string]bool // events whose last outcome was unknown: a copy may land until the next call returns
	last   log             // the topic after the last call
}

// fault hits one call. It may cancel the call's context; what it returns ends the fault after the call.
type fault struct {
	name   string
	inject func(cancel context.CancelFunc) (heal func())
}

const (
	stormKeys   = 3
	stormRounds = 30 // with faults; then the server is left alone and the rest is delivered
)

func newStorm(f *fixture, seed uint64, perKey int) *storm {
	s := &storm{
		fixture: f, seed: seed, perKey: perKey, doubt: map[string]bool{}, done: make([]int, stormKeys),
		dice: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // faults need a seed, not secrecy
	}
	for k := range stormKeys {
		s.keys = append(s.keys, f.records(fmt.Sprintf("storm-%d-%d", seed, k), 8*perKey))
	}
	return s
}

func (s *storm) run() {
	s.Helper()
	s.last = s.read(s.topic)
	faults := s.faults()
	for round := range stormRounds {
		batch := s.next()
		if len(batch) == 0 {
			break
		}
		hit := faults[s.dice.IntN(len(faults))]
		ctx, cancel := context.WithTimeout(s.Context(), s.harness.Timeout)
		heal := hit.inject(cancel)
		results := s.publish(ctx, batch...)
		heal()
		cancel()
		s.check(fmt.Sprintf("seed %d, round %d, fault %s", s.seed, round, hit.name), batch, results)
	}
	for k, records := range s.keys {
		for rest := records[s.done[k]:]; len(rest) > 0; {
			n := min(len(rest), s.room(s.perKey))
			s.eventuallyDelivered("publishing after the faults", rest[:n]...)
			rest = rest[n:]
		}
	}
	l := s.read(s.topic)
	for _, records := range s.keys {
		s.wantOrder(l, records)
	}
}

// next is the batch of a dispatcher: the first undelivered messages of each key, keys interleaved.
func (s *storm) next() []*core.Record {
	var batch []*core.Record
	for i := range s.perKey {
		for k, records := range s.keys {
			if at := s.done[k] + i; at < len(records) && s.fit(len(batch)+1) > len(batch) {
				batch = append(batch, records[at])
			}
		}
	}
	return batch
}

// faults are those that the server can inject; cancelling is always possible.
func (s *storm) faults() []fault {
	srv := s.server
	out := []fault{
		{"none", func(context.CancelFunc) func() { return func() {} }},
		{"cancel", func(cancel context.CancelFunc) func() {
			t := time.AfterFunc(time.Duration(s.dice.IntN(2000))*time.Microsecond, cancel)
			return func() { t.Stop() }
		}},
	}
	if srv.Refuse != nil {
		out = append(out, fault{"refuse", func(context.CancelFunc) func() {
			srv.Refuse(1 << s.dice.IntN(5))
			return func() { srv.Refuse(0) }
		}})
	}
	if srv.RefuseMessage != nil {
		out = append(out, fault{"refuse message", func(context.CancelFunc) func() {
			srv.RefuseMessage(s.dice.IntN(s.perKey * stormKeys))
			return func() { srv.RefuseMessage(-1) }
		}})
	}
	if srv.LoseReply != nil {
		out = append(out, fault{"lose reply", func(context.CancelFunc) func() {
			srv.LoseReply(1 + s.dice.IntN(2))
			return func() { srv.LoseReply(0) }
		}})
	}
	if srv.Cut != nil {
		out = append(out, fault{"cut", func(context.CancelFunc) func() {
			var wg sync.WaitGroup
			wg.Go(srv.Cut)
			return wg.Wait
		}})
	}
	return out
}

// check compares the results of a call with the topic.
func (s *storm) check(what string, batch []*core.Record, results []core.Result) {
	s.Helper()
	before := s.last
	s.last = s.read(s.topic)
	for k, records := range s.keys {
		for want, got := range s.last.firsts(records) {
			if got != want {
				s.Fatalf("%s: key %d: message %d is stored where message %d is missing", what, k, got, want)
			}
		}
		s.checkKey(what, k, before, batch, results)
	}
}

// checkKey checks the results of one key and moves on by those that were delivered in a row.
func (s *storm) checkKey(what string, k int, before log, batch []*core.Record, results []core.Result) {
	s.Helper()
	failed := false
	for i, r := range batch {
		if r.AggregateID != s.keys[k][0].AggregateID {
			continue
		}
		added := s.last.copies(r) - before.copies(r)
		switch o := results[i].Outcome; {
		case o == core.OutcomeDelivered && s.last.copies(r) == 0:
			s.Fatalf("%s: message %d is reported as delivered but is not in the topic", what, i)
		case o == core.OutcomeDelivered && failed:
			s.Fatalf("%s: message %d is delivered after one of its key that is not: %s", what, i, outcomes(results))
		case o == core.OutcomeDelivered:
			s.done[k]++
		case (o == core.OutcomeRejected || o == core.OutcomeSkipped) && added > 0 && !s.doubt[r.EventID]:
			s.Fatalf("%s: message %d is reported as %v but was stored", what, i, o)
		}
		failed = failed || results[i].Outcome != core.OutcomeDelivered
		s.doubt[r.EventID] = results[i].Outcome == core.OutcomeUnknown
	}
}
