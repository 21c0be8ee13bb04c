package brokertest

import (
	"bytes"

	"github.com/go-outbox/outbox/core"
)

func capabilityCases() []Case {
	return []Case{
		{"Capabilities/AreConstant", capabilitiesAreConstant},
		{"Capabilities/FullBatchIsDelivered", fullBatch},
		{"Capabilities/BatchOfMaxBatchBytesIsDelivered", fullBatchOfBytes},
	}
}

// The dispatcher reads the capabilities once.
func capabilitiesAreConstant(t T, h Harness) {
	f := start(t, h)
	caps := f.broker.Capabilities()
	if caps.KeyGuarantee > core.PrefixPerKey {
		f.Errorf("the KeyGuarantee %d does not exist", caps.KeyGuarantee)
	}
	if caps.MaxBatch < 0 || caps.MaxBatchBytes < 0 || caps.MaxInFlight < 0 {
		f.Errorf("a limit is negative: %+v", caps)
	}
	f.deliver(f.record("capabilities"))
	if got := f.broker.Capabilities(); got != caps {
		f.Errorf("the capabilities are %+v after a call, were %+v", got, caps)
	}
	if err := f.broker.Close(f.patient()); err != nil {
		f.Errorf("Close: %v", err)
	}
	if got := f.broker.Capabilities(); got != caps {
		f.Errorf("the capabilities are %+v after Close, were %+v", got, caps)
	}
}

// A batch as large as the capabilities allow goes through.
func fullBatch(t T, h Harness) {
	f := start(t, h)
	f.wantDelivered(f.calls(f.spread(1000))[0])
}

// The same for bytes, as Prepared.Bytes counts them.
func fullBatchOfBytes(t T, h Harness) {
	const practical = 32 << 20
	f := start(t, h)
	limit := f.broker.Capabilities().MaxBatchBytes
	if limit == 0 || limit > practical {
		f.Skipf("MaxBatchBytes is %d: no limit that a test could reach", limit)
	}
	size := max(limit/10, 1)
	if f.harness.Oversize > 0 {
		size = min(size, f.harness.Oversize/2)
	}
	payload := bytes.Repeat([]byte("x"), size)
	records := f.spread(f.fit(limit/size + 1))
	for _, r := range records {
		r.Payload = payload
	}
	f.wantDelivered(f.calls(records)[0])
}

// wantDelivered publishes records of different keys in one call.
func (f *fixture) wantDelivered(records []*core.Record) {
	f.Helper()
	results := f.publish(f.patient(), records...)
	for i, r := range results {
		if r.Outcome != core.OutcomeDelivered {
			f.Fatalf("message %d of a batch of %d is %v: %v", i, len(records), r.Outcome, r.Err)
		}
	}
	if got := len(f.read(f.topic).firsts(records)); got != len(records) {
		f.Errorf("%d of %d delivered messages are in the topic", got, len(records))
	}
}
