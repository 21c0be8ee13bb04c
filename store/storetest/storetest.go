package storetest

import (
	"slices"
	"testing"
)

// Case is one rule of the contract.
type Case struct {
	// Name says the rule, for example "Fetch/LeavesOutHeld".
	Name string
	// Run fails t when the store breaks it.
	Run func(t testing.TB, h Harness)
}

// Run runs all cases against a store, in parallel, each on tables of its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if err := h.validate(); err != nil {
		t.Fatalf("storetest: the harness is not complete:\n%v", err)
	}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, h)
		})
	}
}

// Cases returns all cases, for those who run them in a way of their own.
func Cases() []Case {
	return slices.Concat(
		enqueueCases(),
		payloadCases(),
		fetchCases(),
		lateCommitCases(),
		cutCases(),
		closedKeyCases(),
		rewindCases(),
		settleCases(),
		fenceCases(),
		deadLetterCases(),
		requeueCases(),
		discardCases(),
		blockedKeyCases(),
		leaseCases(),
		lifecycleCases(),
		wakerCases(),
		migrateCases(),
		fingerprintCases(),
		concurrencyCases(),
	)
}

// rule makes a Case of a function that wants fresh tables with a store open on them.
func rule(name string, check func(f *fixture)) Case {
	return Case{Name: name, Run: func(t testing.TB, h Harness) {
		t.Helper()
		check(newFixture(t, h.withDefaults()))
	}}
}
