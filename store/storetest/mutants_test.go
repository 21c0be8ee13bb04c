package storetest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/store/storetest"
)

// A mutant is a store that breaks one rule, and the cases that must fail because of it.
type mutant struct {
	name   string
	caught []string
	breaks func(testing.TB) sabotage
}

// The kit is worth what it finds: each of these stores must fail the cases that name its fault, which an honest store
// passes.
func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(
		enqueueMutants(), fetchMutants(), cursorMutants(), settleMutants(), leaseMutants(), fingerprintMutants(),
		deadLetterMutants(), blockedKeyMutants(),
	) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range m.caught {
				c := caseNamed(t, name)
				if r := try(t, c, patient(harness(honest))); r.Failed() || r.Skipped() {
					t.Fatalf("%s fails or is skipped with an honest store: %q", name, r.said())
				}
				r := try(t, c, harness(m.breaks))
				if !r.Failed() {
					t.Errorf("%s passes", name)
				}
				t.Logf("%s: %s", name, strings.Join(r.said(), "\n"))
			}
		})
	}
}

func caseNamed(t *testing.T, name string) storetest.Case {
	t.Helper()
	cases := storetest.Cases()
	i := slices.IndexFunc(cases, func(c storetest.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %s", name)
	}
	return cases[i]
}

func TestCaseNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range storetest.Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		seen[c.Name] = true
	}
}
