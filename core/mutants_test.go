package core_test

import (
	"testing"

	"github.com/go-outbox/outbox/internal/mutation"
)

// Each mutant breaks one rule of the dispatcher; the tests named have to notice.
func TestDispatcher_MutantsAreCaught(t *testing.T) {
	t.Parallel()
	mutation.Run(t, "--- FAIL", []mutation.Mutant{
		{
			Name: "what was not delivered is settled as published", File: "loop_failure.go", Test: "RandomRuns",
			From: "if r.Outcome == OutcomeDelivered {\n\t\te.Gate()", To: "if r.Outcome != OutcomeRejected {\n\t\te.Gate()",
		},
		{
			Name: "an outage of the broker is charged", File: "loop_failure.go", Test: "AnOutageOfTheBroker",
			From: "case pe.Scope == ScopeBroker:", To: "case false:",
		},
		{
			Name: "an outage of a destination is charged", File: "loop_failure.go", Test: "AFailingDestination",
			From: "case pe.Scope == ScopeDestination:", To: "case false:",
		},
		{
			Name: "an attempt counts twice", File: "loop_failure.go", Test: "ObserverSeesEveryRecordOnce",
			From: "attempts := r.Attempts + 1", To: "attempts := r.Attempts + 2",
		},
		{
			Name: "a permanent rejection is tried again", File: "loop_failure.go", Test: "APermanentRejection",
			From: "if permanent || attempts", To: "if attempts",
		},
		{
			Name: "a settle that failed is not repeated", File: "loop_settle.go", Test: "ALostSettleAnswer|StoreFaults|RandomRuns",
			From: "\t\tl.settler.pending = append(l.settler.pending, batch...)\n", To: "",
		},
		{
			Name: "a settle that was missed counts", File: "loop_settle.go", Test: "WhatASettleMissed",
			From: "l.settledOne(now, s, missed[s.entry.Value.record])", To: "l.settledOne(now, s, false)",
		},
		{
			Name: "a replaced server is not noticed", File: "loop_fetch.go", Test: "AReplacedServer",
			From: "case b.Reset:", To: "case false:",
		},
		{
			Name: "the other results of a call count when there are too few", File: "loop_publish.go", Test: "TooFewResults",
			From: "return unknown(\"WRONG_RESULTS\", fmt.Errorf(\"%d results for %d messages\", len(results), len(batch)))",
			To:   "return append(results, make([]Result, len(batch)-len(results))...)",
		},
		{
			Name: "publishing goes on when the leases may have expired", File: "loop_publish.go", Test: "LeasesMayHaveExpired",
			From: "for !l.stopping && now.Before(l.leases.trusted) {", To: "for !l.stopping {",
		},
		{
			Name: "a lane is given away with records in flight", File: "loop_lease.go", Test: "RebalancingWaits",
			From: "lane.giving && lane.gate.Held() == 0 &&", To: "lane.giving &&",
		},
		{
			Name: "surplus lanes are kept", File: "loop_lease.go", Test: "ReplicasShareLanesEvenly",
			From: "lane.giving = owner != l.member", To: "lane.giving = owner == \"\"",
		},
		{
			Name: "the expiry of others is not watched", File: "loop_lease.go", Test: "TakesOverFromACrashedReplica",
			From: "if got.NextExpiry > 0 {", To: "if false {",
		},
		{
			Name: "another ordering strategy is ignored", File: "loop_strategy.go", Test: "AnotherStrategy",
			From: "if ours == theirs {", To: "if true {",
		},
		{
			Name: "an agreement holds longer than a lease", File: "loop_strategy.go", Test: "TrustsAnAgreement",
			From: "began.Add(l.cfg.LeaseTTL)", To: "began.Add(2 * l.cfg.LeaseTTL)",
		},
		{
			Name: "an agreement holds from the end of the comparison", File: "loop_strategy.go", Test: "TrustsAnAgreement",
			From: "began.Add(l.cfg.LeaseTTL)", To: "began.Add(time.Since(began) + l.cfg.LeaseTTL)",
		},
		{
			Name: "an agreement holds while the store is away", File: "loop_strategy.go", Test: "TrustsAnAgreement",
			From: "l.compare(outlet, a, l.delay(l.cfg.Outage, failures))", To: "a.checking, a.agreed = false, failures > 0",
		},
		{
			Name: "a fetch under way is forgotten when the strategy changes", File: "loop_strategy.go", Test: "PreparesAnew",
			From: "if l.fetcher.busy && !l.fetcher.began.After(adopted) {", To: "if false {",
		},
		{
			Name: "records in memory outlive a change of the strategy", File: "loop_strategy.go", Test: "PreparesAnew",
			From: "\tl.pauseGates(now, outlet)\n", To: "",
		},
		{
			Name: "the strategy changes under a call", File: "loop_strategy.go", Test: "PreparesAnew",
			From: "l.publish.calls[outlet.Broker] > 0 && wait > 0 {", To: "false {",
		},
		{
			Name: "a topic that is being switched is taken for misconfigured", File: "loop_strategy.go", Test: "TheStoreHas",
			From: "s, ok := ParseSwitching(theirs); ok {", To: "s, _ := ParseSwitching(theirs); false {",
		},
		{
			Name: "a topic stays paused after a change of the strategy", File: "loop_strategy.go", Test: "TheStoreHas|PreparesAnew",
			From: "\t\tl.resume(now, outlet, false)\n", To: "\t\t_ = c\n",
		},
		{
			Name: "a change of the strategy ends a halt", File: "loop_strategy.go", Test: "EndsNoHalt",
			From: "c == nil || !c.halted {", To: "c == nil || true {",
		},
		{
			Name: "shutdown does not wait for what is in flight", File: "loop.go", Test: "ShutdownFinishes",
			From: "l.leases.busy || len(l.publish.underWay) > 0 ||", To: "l.leases.busy ||",
		},
		{
			Name: "a poison that looks like an outage is never charged", File: "suspects.go", Test: "APoisonThatLooksLikeAnOutage",
			From: "return l != nil && l.outlet == outlet && l.times >= convictAfter && !l.before", To: "return l == nil && false",
		},
		{
			Name: "whoever is there in an outage is charged", File: "suspects.go", Test: "ManyOutagesAreNotBlamed",
			From: "return l != nil && l.outlet == outlet && l.times >= convictAfter && !l.before", To: "return l != nil && l.outlet == outlet",
		},
		{
			Name: "a suspect goes out with others", File: "suspects.go", Test: "APoisonThatLooksLikeAnOutage",
			From: "e.Alone = s.alone[e.EventID] != nil", To: "_ = e",
		},
		{
			Name: "an outlet is always tried with the same record", File: "circuit.go", Test: "APoisonThatLooksLikeAnOutage",
			From: "l.askForTrial(now, outlet, c, l.suspects.failedLast) ||", To: "",
		},
		{
			Name: "an exhausted record is parked whatever the policy", File: "loop_failure.go", Test: "ABlockedEventHoldsItsKey",
			From: "case retry.Exhausted != ExhaustedPark:", To: "case false:",
		},
		{
			Name: "a record is parked before its copy is there", File: "loop_failure.go", Test: "Field_026",
			From: "if results[0].Outcome == OutcomeDelivered {", To: "if true {",
		},
		{
			Name: "a halted topic goes on after a restart", File: "loop_fetch.go", Test: "AHaltedTopic",
			From: "\t\tif e.Blocked {", To: "\t\tif false {",
		},
		{
			Name: "a halted topic never goes on", File: "circuit.go", Test: "AHaltedTopic",
			From: "if !l.blocked(c.blockedAt) {", To: "if false {",
		},
		{
			Name: "a key is in two calls at once after a failover", File: "loop_fetch.go", Test: "AKeyIsNeverInTwoCalls",
			From: "!l.publish.returned(lane.after) ||", To: "",
		},
		{
			Name: "what cannot be prepared halts every topic", File: "circuit.go", Test: "AHaltForWhatCannotBePrepared",
			From: "e.Outlet = cmp.Or(l.places[topic], ordering.Outlet{Destination: topic})", To: "_ = topic",
		},
		{
			Name: "memory is not bounded", File: "loop_fetch.go", Test: "MemoryIsBounded",
			From: "room < max(l.cfg.FetchSize/2, 1) ||", To: "",
		},
	})
}
