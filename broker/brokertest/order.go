package brokertest

import (
	"fmt"

	"github.com/go-outbox/outbox/core"
)

func orderCases() []Case {
	return []Case{
		{"Publish/KeepsOrderOfAKeyWithinABatch", orderWithinBatch},
		{"Publish/KeepsOrderOfAKeyAcrossBatches", orderAcrossBatches},
		{"Publish/PrefixPerKeyHoldsUnderFaults", orderPrefixUnderFaults},
		{"Publish/FirstOccurrencesStayInOrderUnderFaults", orderUnderFaults},
	}
}

// Messages of one key are stored in the order of the batch.
func orderWithinBatch(t T, h Harness) {
	f := start(t, h)
	if f.broker.Capabilities().KeyGuarantee == core.OnePerKey {
		f.Skipf("under OnePerKey no call has two messages of a key")
	}
	n := f.fit(60)
	byKey := map[string][]*core.Record{}
	var batch []*core.Record
	for i := range n {
		key := fmt.Sprintf("within-%d", i%3)
		r := f.record(key)
		byKey[key] = append(byKey[key], r)
		batch = append(batch, r)
	}
	f.deliver(batch...)
	l := f.read(f.topic)
	for _, records := range byKey {
		f.wantOrder(l, records)
	}
}

// A call that begins after another has returned comes later.
func orderAcrossBatches(t T, h Harness) {
	f := start(t, h)
	var records []*core.Record
	for range 20 {
		some := f.records("across", f.room(3))
		f.deliver(some...)
		records = append(records, some...)
	}
	f.wantOrder(f.read(f.topic), records)
}

// PrefixPerKey lets the dispatcher put many messages of a key into one call, so faults must leave no gap.
func orderPrefixUnderFaults(t T, h Harness) {
	f := start(t, h)
	if f.broker.Capabilities().KeyGuarantee != core.PrefixPerKey {
		f.Skipf("the broker does not promise PrefixPerKey")
	}
	for seed := range uint64(3) {
		newStorm(f, seed, 12).run()
	}
}

// With one message of a key in a call, every broker keeps the order, whatever fails.
func orderUnderFaults(t T, h Harness) {
	f := start(t, h)
	for seed := range uint64(2) {
		newStorm(f, seed, 1).run()
	}
}
