package brokertest

import (
	"fmt"
	"sync"

	"github.com/go-outbox/outbox/core"
)

func publishCases() []Case {
	return []Case{
		{"Publish/DeliveredIsReadable", publishReadable},
		{"Publish/NilAndEmptyPayloads", publishNilAndEmpty},
		{"Publish/ReplayIsDeliveredAgain", publishReplay},
		{"Publish/ResultsInOrderOnePerMessage", publishResults},
		{"Publish/DoesNotKeepTheBatch", publishKeepsNothing},
		{"Publish/DisjointKeysConcurrently", publishConcurrently},
	}
}

// Delivered means: another client reads the same bytes, all headers and the key.
func publishReadable(t T, h Harness) {
	f := start(t, h)
	payloads := []string{`{"total":1}`, `null`, `""`, ` `, "größe 📦\n", "\x00\x01\xfe\xff", "<a>&amp;</a>"}
	for i, payload := range payloads {
		r := f.record(fmt.Sprintf("readable-%d", i))
		r.Payload = []byte(payload)
		f.wantRoundTrip(r)
	}
	plain := f.record("readable-plain")
	plain.Headers = nil
	f.wantRoundTrip(plain)

	same := f.records("readable-same", 3)
	f.deliver(same...)
	l := f.read(f.topic)
	for _, r := range same {
		if got, want := l.find(r.EventID)[0].Token, l.find(same[0].EventID)[0].Token; got != want {
			f.Errorf("tokens %q and %q for messages of one key", got, want)
		}
	}
}

// Nil is a tombstone to some brokers and nothing to others, but it is never lost.
func publishNilAndEmpty(t T, h Harness) {
	f := start(t, h)
	null, empty := f.record("nil"), f.record("empty")
	null.Payload, empty.Payload = nil, []byte{}
	f.wantRoundTrip(null)
	f.wantRoundTrip(empty)
	l := f.read(f.topic)
	nullIsNil, emptyIsNil := l.find(null.EventID)[0].Payload == nil, l.find(empty.EventID)[0].Payload == nil
	switch tells := f.harness.TellsNilFromEmpty; {
	case tells && (!nullIsNil || emptyIsNil):
		f.Errorf("TellsNilFromEmpty is declared, but nil is read as nil: %t, empty as nil: %t", nullIsNil, emptyIsNil)
	case !tells && nullIsNil != emptyIsNil:
		f.Errorf("nil and empty can be told apart: declare TellsNilFromEmpty")
	}
}

// An event that a person sends again is not swallowed as a repeat.
func publishReplay(t T, h Harness) {
	f := start(t, h)
	r := f.record("replay")
	f.deliver(r)
	again := clone(r)
	again.Replay = 1
	f.deliver(again)
	found := f.read(f.topic).find(r.EventID)
	if len(found) != 2 {
		f.Fatalf("the event is stored %d times after one replay, want 2", len(found))
	}
	if got := found[1].Headers[core.HeaderReplay]; got != "1" {
		f.Errorf("header %s of the replay is %q, want 1", core.HeaderReplay, got)
	}
}

// One result for each message, each about its own message.
func publishResults(t T, h Harness) {
	f := start(t, h)
	f.deliver(f.record("single"))
	records := f.spread(f.fit(7))
	if f.server.RefuseMessage != nil {
		f.server.RefuseMessage(1)
	}
	results := f.publish(f.patient(), records...)
	l := f.read(f.topic)
	f.wantAgreement(l, records, results)
	for i, r := range results {
		if l.copies(records[i]) > 0 && r.Outcome != core.OutcomeDelivered {
			f.Errorf("message %d is stored but its result is %v: the results are %s", i, r.Outcome, outcomes(results))
		}
	}
}

// The caller may use the batch for something else as soon as the call has returned.
func publishKeepsNothing(t T, h Harness) {
	f := start(t, h)
	records := f.spread(f.fit(5))
	originals := make([]*core.Record, len(records))
	for i, r := range records {
		originals[i] = clone(r)
	}
	batch := f.prepare(records...)
	ctx := f.patient()
	results := f.await(ctx, f.begin(ctx, batch), len(batch), f.harness.Patience)
	clear(batch)
	for _, r := range records {
		clear(r.Payload)
		clear(r.Headers)
	}
	f.deliver(f.record("after"))
	l := f.read(f.topic)
	f.wantAgreement(l, originals, results)
	for _, r := range originals {
		for _, m := range l.find(r.EventID) {
			if string(m.Payload) != string(r.Payload) || m.Headers["tenant"] != r.Headers["tenant"] {
				f.Errorf("a change of the record after the call has changed the message")
			}
		}
	}
}

// As many calls at once as MaxInFlight says, each with its own keys. Run with -race.
func publishConcurrently(t T, h Harness) {
	f := start(t, h)
	const rounds = 5
	workers := min(max(f.broker.Capabilities().MaxInFlight, 1), 16)
	records := make([][]*core.Record, workers)
	calls := make([][][]core.Prepared, workers)
	for w := range workers {
		for range rounds {
			some := f.records(fmt.Sprintf("worker-%d", w), f.room(4))
			records[w] = append(records[w], some...)
			calls[w] = append(calls[w], f.prepare(some...))
		}
	}
	ctx := f.patient()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for _, batch := range calls[w] {
				for _, r := range f.broker.PublishBatch(ctx, batch) {
					if r.Outcome != core.OutcomeDelivered {
						f.Errorf("worker %d: %v: %v", w, r.Outcome, r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	l := f.read(f.topic)
	for w := range workers {
		f.wantOrder(l, records[w])
	}
}
