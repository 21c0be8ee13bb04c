package sim_test

import (
	"testing"

	"github.com/go-outbox/outbox/internal/mutation"
)

const (
	coreDir     = "../../../../core/"
	orderingDir = "../../../../ordering/"
	cursorDir   = "../cursor/"
)

// mutants break one rule each: of the dispatcher, of the gate, of the cursor, or, with an argument alone, one that the
// database keeps. Where it takes many seeds to hit on the rule, a first one is given.
var mutants = []mutation.Mutant{
	{
		Name: "a record is settled before it is published", File: coreDir + "loop_publish.go",
		From: "\tl.send(outlet, prepared, func(results []Result) { l.published(outlet, batch, results) })\n",
		To: "\tfor _, e := range batch {\n\t\te.Gate().Delivered(time.Now(), e)\n" +
			"\t\tl.settleLater(e, StatusPublished)\n\t}\n" +
			"\tl.send(outlet, prepared, func([]Result) {})\n",
	},
	{
		Name: "what may have been delivered counts as delivered", File: coreDir + "loop_failure.go",
		From: "if r.Outcome == OutcomeDelivered {\n\t\te.Gate()", To: "if r.Outcome != OutcomeRejected {\n\t\te.Gate()",
	},
	{
		Name: "an attempt counts twice", File: coreDir + "loop_failure.go",
		From: "attempts := r.Attempts + 1", To: "attempts := r.Attempts + 2",
	},
	{
		Name: "an outage of the broker is charged", File: coreDir + "loop_failure.go",
		From: "case pe.Scope == ScopeBroker:", To: "case false:",
	},
	{
		Name: "an outage of a destination is charged", File: coreDir + "loop_failure.go",
		From: "case pe.Scope == ScopeDestination:", To: "case false:",
	},
	{
		Name: "whoever is there in an outage is charged", File: coreDir + "suspects.go",
		From: "return l != nil && l.outlet == outlet && l.times >= convictAfter && !l.before",
		To:   "return l != nil && l.outlet == outlet",
	},
	{
		Name: "leases are trusted for ever", File: coreDir + "loop_publish.go",
		From: "for !l.stopping && now.Before(l.leases.trusted) {", To: "for !l.stopping {",
	},
	{
		Name: "a lane goes on after a failover", File: coreDir + "loop_fetch.go",
		From: "case b.Reset:", To: "case false:",
	},
	{
		Name: "a failover is not noticed", File: cursorDir + "cursor.go",
		From: "if c.server.known && (", To: "if false && (",
		Args: []string{"-sim.from", "260"},
	},
	{
		Name: "a settle that failed is not repeated", File: coreDir + "loop_settle.go",
		From: "\t\tl.settler.pending = append(l.settler.pending, batch...)\n", To: "",
	},
	{
		Name: "a blocked head is forgotten", File: coreDir + "loop_fetch.go",
		From: "case r.Delay == Forever:\n\t\te.Blocked, e.Due = true, now.Add(blockedRecheck)",
		To:   "case r.Delay == Forever:",
	},
	{
		Name: "the gate is open for closed keys", File: orderingDir + "gate_fetch.go",
		From: "if k.closed && !g.reopens(now, f, after, k, e) {", To: "if false {",
	},
	{
		Name: "two of a key in flight", File: orderingDir + "gate.go",
		From: "k.first == nil || k.busy > 0 || k", To: "k.first == nil || k",
	},
	{
		Name: "no rewind after the head finished", File: orderingDir + "gate.go",
		From: "\tg.rewindTo(k.head)\n\tg.fetchSkipped(k)", To: "\tg.fetchSkipped(k)",
	},
	{
		Name: "no rewind after an outage", File: orderingDir + "gate_outlet.go",
		From: "\tg.rewindTo(p.low)\n}", To: "}",
	},
	{
		Name: "a key reopens by a fetch sent before its head was let go", File: orderingDir + "gate_fetch.go",
		From: " || f.tick < k.since {", To: " {",
	},
	{
		Name: "followers go before a park is written", File: orderingDir + "gate_answer.go",
		From: "\te.state = entryAnswered\n\tg.closeKey(k, e)\n\treturn true",
		To:   "\te.state = entryAnswered\n\tg.closeKey(k, e)\n\tg.finishHead(k)\n\treturn true",
	},
	{
		Name: "a trial overtakes what is under way of its key", File: orderingDir + "gate_outlet.go",
		From: " || g.keys[c.key] != nil || g.held", To: " || g.held",
	},
	{Name: "a settle is not fenced", Args: []string{"-sim.unfenced"}},
}

// The simulation has to find a run in which each broken rule does harm.
func TestSimulation_MutantsAreCaught(t *testing.T) {
	t.Parallel()
	for i := range mutants {
		mutants[i].Test = "^TestSimulation$"
		mutants[i].Args = append([]string{"-sim.seeds", "1000"}, mutants[i].Args...)
	}
	mutation.Run(t, "replay it", mutants)
}
