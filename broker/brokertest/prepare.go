package brokertest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	"github.com/go-outbox/outbox/core"
)

func prepareCases() []Case {
	return []Case{
		{"Prepare/IsPure", prepareIsPure},
		{"Prepare/NeedsNoServer", prepareNeedsNoServer},
		{"Prepare/DestinationDependsOnTheTopicAlone", prepareDestination},
		{"Prepare/OversizeIsPermanentAndNamesTheLimit", prepareOversize},
		{"Prepare/OddHeaders", prepareOddHeaders},
		{"Prepare/OddHeaderNamesRoundTripOrAreRefused", prepareOddHeaderNames},
	}
}

// The same record gives the same answer every time, is not written to, and may be prepared by many goroutines.
func prepareIsPure(t T, h Harness) {
	f := start(t, h)
	r := f.record("pure")
	before := clone(r)
	first := f.prepare(r)[0]
	if first.Record != r {
		f.Errorf("Prepared.Record is not the record that was prepared")
	}
	if first.Bytes <= 0 {
		f.Errorf("Prepared.Bytes is %d", first.Bytes)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch p, err := f.broker.Prepare(r); {
			case err != nil:
				f.Errorf("Prepare again: %v", err)
			case p.Destination != first.Destination || p.Bytes != first.Bytes:
				f.Errorf("Prepare again gives destination %q and %d bytes, was %q and %d",
					p.Destination, p.Bytes, first.Destination, first.Bytes)
			}
		})
	}
	wg.Wait()
	if !reflect.DeepEqual(r, before) {
		f.Errorf("Prepare has changed the record: %+v, was %+v", r, before)
	}
}

// Prepare does no I/O: it works while nothing can be reached.
func prepareNeedsNoServer(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Down != nil, "Down")
	f.server.Down()
	f.Cleanup(f.server.Up)
	f.prepare(f.record("offline"))
}

// A destination in trouble is the trouble of one topic, and a batch goes to one destination.
func prepareDestination(t T, h Harness) {
	f := start(t, h)
	want := f.prepare(f.record("key-0"))[0].Destination
	if want == "" {
		f.Fatalf("the destination is empty")
	}
	for i := range 100 {
		r := f.record(fmt.Sprintf("key-%d", i))
		r.AggregateType = fmt.Sprintf("type-%d", i%3)
		r.EventType = fmt.Sprintf("event-%d", i%5)
		r.Headers["tenant"] = fmt.Sprintf("tenant-%d", i)
		if got := f.prepare(r)[0].Destination; got != want {
			f.Fatalf("destination %q for key %s, but %q for another key of the same topic", got, r.Key(), want)
		}
	}
	if other := f.prepare(f.recordOn(f.server.Topic(), "key-0"))[0].Destination; other == want {
		f.Errorf("two topics have the same destination %q", want)
	}
}

// What is too large fails before it can hurt its neighbours in a batch.
func prepareOversize(t T, h Harness) {
	f := start(t, h)
	if f.harness.Oversize == 0 {
		f.Skipf("Harness.Oversize is 0: the broker has no limit")
	}
	r := f.record("large")
	r.Payload = []byte(strings.Repeat("x", f.harness.Oversize))
	if _, err := f.broker.Prepare(r); err == nil {
		f.Errorf("Prepare accepts a payload of %d bytes", len(r.Payload))
	} else {
		f.wantPermanent(err)
		if !strings.ContainsAny(err.Error(), "123456789") {
			f.Errorf("the error does not name the limit: %v", err)
		}
	}
	r = f.record("large")
	r.Payload = []byte(strings.Repeat("x", f.harness.Oversize/2))
	f.deliver(r)
}

// wantPermanent checks that an error of Prepare parks the message at once.
func (f *fixture) wantPermanent(err error) {
	f.Helper()
	var e *core.PublishError
	if errors.As(err, &e) && (e.Class != core.ClassPermanent || e.Scope != core.ScopeMessage) {
		f.Errorf("the error is %v of the %v, want permanent of the message: %v", e.Class, e.Scope, err)
	}
}

// Header values come back as they were.
func prepareOddHeaders(t T, h Harness) {
	f := start(t, h)
	r := f.record("headers")
	r.Headers = map[string]string{
		"empty": "", "space": " ", "long": strings.Repeat("abcde", 1000), "newline": "two\nlines\r\n",
		"emoji": "📦→🚚", "quotes": `"it's" \ {}`, "number": "007",
	}
	f.wantRoundTrip(r)
}

// Names that a protocol cannot carry are refused; they are never lost or changed.
func prepareOddHeaderNames(t T, h Harness) {
	f := start(t, h)
	many := map[string]string{}
	for i := range 30 {
		many[fmt.Sprintf("header_%d", i)] = "value"
	}
	for _, headers := range []map[string]string{
		{"Content-Type": "a", "content-type": "b"},
		{"dotted.name": "a", "..": "b", "with space": "c", "größe": "d", "📦": "e"},
		{strings.Repeat("n", 300): "a"},
		{"CC": "a", "BCC": "b", "x-delay": "c", "AWS.name": "d"},
		many,
	} {
		r := f.record("names")
		r.Headers = maps.Clone(headers)
		if _, err := f.broker.Prepare(r); err != nil {
			f.wantPermanent(err)
			continue
		}
		f.wantRoundTrip(r)
	}
}

// wantRoundTrip publishes a record and compares what the reader sees.
func (f *fixture) wantRoundTrip(r *core.Record) {
	f.Helper()
	f.deliver(r)
	found := f.read(r.Topic).find(r.EventID)
	if len(found) == 0 {
		f.Fatalf("event %s was delivered but cannot be read (looked for header %s)", r.EventID, core.HeaderEventID)
	}
	m := found[0]
	if string(m.Payload) != string(r.Payload) {
		f.Errorf("payload %s, want %s", excerpt(string(m.Payload)), excerpt(string(r.Payload)))
	}
	for name, want := range r.WireHeaders() {
		if got, ok := m.Headers[name]; !ok {
			f.Errorf("header %q is missing", name)
		} else if got != want {
			f.Errorf("header %q is %s, want %s", name, excerpt(got), excerpt(want))
		}
	}
	if token := f.harness.Token; token != nil && m.Token != token(r) {
		f.Errorf("token %q, want %q", m.Token, token(r))
	}
}

// excerpt quotes a value, shortened to what helps.
func excerpt(s string) string {
	if len(s) > 80 {
		return fmt.Sprintf("%q... (%d bytes)", s[:80], len(s))
	}
	return fmt.Sprintf("%q", s)
}
