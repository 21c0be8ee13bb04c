package brokertest

import (
	"strings"

	"github.com/go-outbox/outbox/core"
)

func topologyCases() []Case {
	return []Case{
		{"Topology/VerifyNamesWhatIsMissing", topologyVerify},
		{"Topology/DeclareMakesWhatIsMissing", topologyDeclare},
	}
}

// topology starts a server with a broker that is a core.Topology and a topic that is missing.
func topology(t T, h Harness) (f *fixture, top core.Topology, missing string) {
	t.Helper()
	f = start(t, h)
	top, ok := f.broker.(core.Topology)
	if !ok {
		f.Skipf("the broker is no core.Topology")
	}
	f.needs(f.server.MissingTopic != nil, "MissingTopic")
	return f, top, f.server.MissingTopic()
}

// Verify is silent about what is right and names what is missing.
func topologyVerify(t T, h Harness) {
	f, top, missing := topology(t, h)
	if err := top.Verify(f.patient(), f.topic); err != nil {
		f.Errorf("Verify of a topic that exists: %v", err)
	}
	switch err := top.Verify(f.patient(), f.topic, missing); {
	case err == nil:
		f.Errorf("Verify does not report the missing topic %q", missing)
	case !strings.Contains(err.Error(), missing):
		f.Errorf("Verify does not name the missing topic %q: %v", missing, err)
	}
}

// Declare makes a topic that can be published to; what is there stays as it is.
func topologyDeclare(t T, h Harness) {
	f, top, missing := topology(t, h)
	r := f.record("kept")
	f.deliver(r)
	for range 2 {
		if err := top.Declare(f.patient(), f.topic, missing); err != nil {
			f.Fatalf("Declare: %v", err)
		}
	}
	f.eventually("Verify after Declare", func() error { return top.Verify(f.patient(), f.topic, missing) })
	f.eventuallyDelivered("publishing to a declared topic", f.recordOn(missing, "declared"))
	if f.read(f.topic).copies(r) != 1 {
		f.Errorf("Declare has changed a topic that was there")
	}
}
