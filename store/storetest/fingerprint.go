package storetest

import (
	"fmt"
	"maps"
	"sync"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func fingerprintCases() []Case {
	return []Case{
		rule("Fingerprint/KeeperIsAsDeclared", fingerprintKeeperIsAsDeclared),
		rule("Fingerprint/TheFirstIsRemembered", fingerprintFirstIsRemembered),
		rule("Fingerprint/AcceptedReplacesIt", fingerprintAcceptedReplacesIt),
		rule("Fingerprint/CallersAtTheSameTimeAgree", fingerprintCallersAgree),
		rule("Fingerprint/AllAreListed", fingerprintAllAreListed),
	}
}

// Checks Harness.FingerprintKeeper.
func fingerprintKeeperIsAsDeclared(f *fixture) {
	if _, is := f.store.(core.FingerprintKeeper); is != f.h.FingerprintKeeper {
		f.Errorf("the store is a core.FingerprintKeeper: %t, the harness says %t", is, f.h.FingerprintKeeper)
	}
}

// keeper is a handle on the tables that keeps fingerprints; the case is skipped when the store does not.
func (f *fixture) keeper() core.FingerprintKeeper {
	f.Helper()
	keeper, is := f.tables.Store(f.TB).(core.FingerprintKeeper)
	if !is {
		f.Skipf("the store is no core.FingerprintKeeper")
	}
	return keeper
}

func (f *fixture) wantFingerprint(keeper core.FingerprintKeeper, broker, destination, given, want string) {
	f.Helper()
	got, err := keeper.Fingerprint(f.within(), broker, destination, given)
	if err != nil || got != want {
		f.Fatalf("fingerprint of %q at broker %q, given %q: got %q (%v), want %q", destination, broker, given, got, err, want)
	}
}

// A dispatcher with another strategy sends the events of a key another way than those before: it has to see that.
func fingerprintFirstIsRemembered(f *fixture) {
	const url = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"
	keeper, other := f.keeper(), f.keeper()
	f.wantFingerprint(keeper, "", "orders", "record-key/v1:murmur2:p12", "record-key/v1:murmur2:p12")
	for _, k := range []core.FingerprintKeeper{keeper, other} { // other is another process
		f.wantFingerprint(k, "", "orders", "none/v1", "record-key/v1:murmur2:p12")
	}
	f.wantFingerprint(keeper, "", "Orders", "none/v1", "none/v1")
	f.wantFingerprint(keeper, "second", "orders", "shards/v1:md5:8", "shards/v1:md5:8")
	f.wantFingerprint(keeper, "second", url, "message-group/v1", "message-group/v1")
	f.wantFingerprint(other, "", "orders", "none/v1", "record-key/v1:murmur2:p12")
	f.wantFingerprint(other, "second", "orders", "none/v1", "shards/v1:md5:8")
	f.wantFingerprint(other, "second", url, "none/v1", "message-group/v1")
}

func fingerprintAcceptedReplacesIt(f *fixture) {
	keeper, other := f.keeper(), f.keeper()
	accept := func(destination, fingerprint string) {
		f.Helper()
		if err := keeper.AcceptFingerprint(f.within(), "", destination, fingerprint); err != nil {
			f.Fatalf("accept fingerprint: %v", err)
		}
	}
	f.wantFingerprint(keeper, "", "orders", "one", "one")
	f.wantFingerprint(keeper, "", "invoices", "one", "one")
	accept("orders", "two")
	accept("orders", "two") // again is no error
	accept("fresh", "three")
	for _, k := range []core.FingerprintKeeper{keeper, other} {
		f.wantFingerprint(k, "", "orders", "one", "two")
		f.wantFingerprint(k, "", "invoices", "two", "one")
		f.wantFingerprint(k, "", "fresh", "one", "three")
	}
}

func fingerprintCallersAgree(f *fixture) {
	const callers = 8
	keepers := []core.FingerprintKeeper{f.keeper(), f.keeper()}
	got, errs := make([]string, callers), make([]error, callers)
	ctx := f.within()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { got[i], errs[i] = keepers[i%2].Fingerprint(ctx, "", "orders", fmt.Sprint("of caller ", i)) })
	}
	all.Wait()
	for i := range callers {
		if errs[i] != nil {
			f.Fatalf("fingerprint: %v", errs[i])
		}
		if got[i] != got[0] {
			f.Errorf("callers at the same time got %q", got)
		}
	}
}

func fingerprintAllAreListed(f *fixture) {
	keeper, other := f.keeper(), f.keeper()
	want := map[ordering.Outlet]string{}
	for step, o := range []ordering.Outlet{
		{}, {Destination: "orders"}, {Broker: "second", Destination: "orders"}, {Broker: "second", Destination: "Orders"},
	} {
		if step > 0 {
			want[o] = fmt.Sprint("strategy ", step)
			f.wantFingerprint(keeper, o.Broker, o.Destination, want[o], want[o])
		}
		got, err := other.Fingerprints(f.within())
		if err != nil || !maps.Equal(got, want) {
			f.Fatalf("fingerprints: got %q (%v), want %q", got, err, want)
		}
	}
}
