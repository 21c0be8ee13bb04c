package ordering

import (
	"testing"

	"github.com/go-outbox/outbox/internal/mutation"
)

// Each mutant breaks one rule of the gate; the model has to find an interleaving in which that loses or reorders events.
func TestGate_MutantsAreCaught(t *testing.T) {
	t.Parallel()
	mutants := []mutation.Mutant{
		{
			Name: "no rewind after the head finished", File: "gate.go",
			From: "\tg.rewindTo(k.head)\n\tg.fetchSkipped(k)",
			To:   "\tg.fetchSkipped(k)",
		},
		{
			Name: "records skipped below the head are forgotten", File: "gate.go",
			From: "if k.low != 0 && k.low < k.head {",
			To:   "if false {",
		},
		{
			Name: "a rewind is lost to a failed fetch", File: "gate_fetch.go",
			From: "if f.rewind != 0 {",
			To:   "if false {",
		},
		{
			Name: "a key reopens while its head is held", File: "gate_fetch.go",
			From: "if k.holdHead || after",
			To:   "if after",
		},
		{
			Name: "a key reopens by a fetch sent above its head", File: "gate_fetch.go",
			From: "k.holdHead || after >= k.head || f",
			To:   "k.holdHead || f",
		},
		{
			Name: "a key reopens by a fetch sent before the head was let go", File: "gate_fetch.go",
			From: " || f.tick < k.since {",
			To:   " {",
		},
		{
			Name: "two of a key in flight", File: "gate.go",
			From: "k.first == nil || k.busy > 0 || k",
			To:   "k.first == nil || k",
		},
		{
			Name: "a rewound record in flight is not fetched again", File: "gate_fetch.go",
			From: "\t\t\tg.again[id] = true",
			To:   "",
		},
		{
			Name: "a missed settle is not fetched again", File: "gate_answer.go",
			From: "\tif missed {\n\t\tg.rewindTo(e.ID)\n\t}\n",
			To:   "",
		},
		{
			Name: "a parked head lets followers go before the park is written", File: "gate_answer.go",
			From: "\te.state = entryAnswered\n\tg.closeKey(k, e)\n\treturn true",
			To:   "\te.state = entryAnswered\n\tg.closeKey(k, e)\n\tg.finishHead(k)\n\treturn true",
		},
		{
			Name: "an outlet opens to a fetch sent before it was resumed", File: "gate_outlet.go",
			From: "p.resuming && tick >= p.since",
			To:   "p.resuming",
		},
		{
			Name: "a resumed outlet is not rewound", File: "gate_outlet.go",
			From: "\tg.rewindTo(p.low)\n}",
			To:   "}",
		},
		{
			Name: "a failed record of a run does not stop the rest", File: "gate_answer.go",
			From: "\tcase k.closed && !k.isHead(e):",
			To:   "\tcase false:",
		},
		{
			Name: "a suspended record of a run does not stop the rest", File: "gate_answer.go",
			From: "k.suspended = p",
			To:   "_ = p",
		},
		{
			Name: "a key whose head vanished stays closed", File: "gate_fetch.go",
			From: "\t\tg.reopenVanished(f, reply)\n",
			To:   "",
		},
		{
			Name: "a trial overtakes what is under way of its key", File: "gate_outlet.go",
			From: " || g.keys[c.key] != nil || g.held",
			To:   " || g.held",
		},
		{
			Name: "a trial overtakes what another pause let go of", File: "gate_outlet.go",
			From: "o.Covers(c.outlet) && other.mayHold(c)",
			To:   "false && o.Covers(c.outlet) && other.mayHold(c)",
		},
		{
			Name: "the second candidate is not the first of its key", File: "gate_outlet.go",
			From: "c.key != p.lowest.key && (p.second.id == 0 || c.id < p.second.id)",
			To:   "p.second.id == 0 || c.id > p.second.id",
		},
		{
			Name: "the last answer of a suspended run does not offer the rest", File: "gate_answer.go",
			From: "\tg.offer(now, k)\n\tg.forget(k)\n\treturn true",
			To:   "\tg.forget(k)\n\treturn true",
			Test: "ARunThatWasSuspendedOffersWhatIsBehindIt",
		},
		{
			Name: "a trial overtakes what has to be fetched again", File: "gate_outlet.go",
			From: " || c.id > g.covered",
			To:   "",
			Test: "ATrialWaitsForWhatHasToBeFetchedAgain",
		},
		{
			Name: "a blocked head is told as blocked for ever", File: "gate.go",
			From: "\tg.undue(k)\n\tg.unblock(k)\n}",
			To:   "\tg.undue(k)\n}",
		},
	}
	for i := range mutants {
		if mutants[i].Test == "" {
			mutants[i].Test = "KeepsOrderAndLosesNothing"
			mutants[i].Args = []string{"-gate.seeds", "20000"}
		}
	}
	mutation.Run(t, "--- FAIL", mutants)
}
