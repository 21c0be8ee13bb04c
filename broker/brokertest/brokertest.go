package brokertest

import (
	"context"
	"slices"
	"testing"
)

// T is the part of [testing.T] that the kit and harnesses use. A harness that needs more asserts it to *testing.T,
// which it is in [Run].
type T interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Case is one sentence of the contract.
type Case struct {
	// Name is the sentence, for example "Publish/KeepsOrderOfAKeyWithinABatch".
	Name string
	// Run checks it. It starts a server of its own and leaves nothing behind once the cleanups of t have run.
	Run func(t T, h Harness)
}

// Run runs every case as a subtest of t, in parallel unless Harness.Serial.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Start == nil {
		t.Fatal("brokertest: Harness.Start is required")
	}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if !h.Serial {
				t.Parallel()
			}
			c.Run(t, h)
		})
	}
}

// Cases returns all cases, for those who run them by other means than [Run].
func Cases() []Case {
	return slices.Concat(capabilityCases(), prepareCases(), publishCases(), orderCases(), faultCases(), cancelCases(),
		closeCases(), topologyCases())
}
