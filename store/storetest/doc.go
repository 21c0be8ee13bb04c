// Package storetest is the contract of [core.Store] as tests. Whoever writes a store describes it in a [Harness] and
// calls [Run] from a test of their own:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		storetest.Run(t, storetest.Harness{
//			Tables: freshTables, // empty, migrated, seen by nobody else
//			Lanes:  64,
//		})
//	}
//
// The name of a case is the rule it checks; its comment in the source says what goes wrong without the rule. Package
// memstore passes the kit with a harness of about 60 lines: copy that one. The kit itself is proved by stores that
// break one rule each, and must fail the case that names it.
//
// Cases wait for no clock except where the contract speaks of time and the harness cannot move it ([Tables].Expire).
package storetest
