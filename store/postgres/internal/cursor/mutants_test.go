package cursor_test

import (
	"testing"

	"github.com/go-outbox/outbox/internal/mutation"
)

// mutants breaks one rule each. Those with args break a rule that SQL keeps, in the model's database; the others change
// the source of the cursor. Where it takes many seeds to hit on the rule, a first one is given.
var mutants = []mutation.Mutant{
	{Name: "an id is drawn before the xid", Args: []string{"-cursor.broken", "idfirst", "-cursor.first", "9100"}},
	{Name: "a sample has the snapshot's xmax in place of a xid", Args: []string{"-cursor.broken", "xmax"}},
	{Name: "the last id is read without a lock", Args: []string{"-cursor.broken", "lastid", "-cursor.first", "1400"}},
	{Name: "a row is settled by its id alone", Args: []string{"-cursor.broken", "byid"}},
	{
		Name: "the mark moves before the fetch that it is for", File: "cursor.go",
		From: "Mark: l.mark, Gate: max(l.gate, l.mark),",
		To:   "Mark: max(l.mark, min(f.settled, l.position)), Gate: max(l.gate, l.mark, min(f.settled, l.position)),",
		Args: []string{"-cursor.first", "22000"},
	},
	{
		Name: "the position is the lower bound", File: "cursor.go",
		From: "Mark: l.mark, Gate: max(l.gate, l.mark),", To: "Mark: l.position, Gate: l.position,",
	},
	{
		Name: "what is behind the gate is never read", File: "cursor.go",
		From: "f.Few = union(f.Few, l.few)", To: "f.Few = nil",
	},
	{
		Name: "the gate moves before the fetch that it is for", File: "cursor.go",
		From: "Gate: max(l.gate, l.mark),", To: "Gate: max(min(f.gate, l.position), l.mark),",
	},
	{
		Name: "the gate takes a sample above xmax", File: "sample.go",
		From: "if p.xid > s.snapshot.Xmax {", To: "if false {",
	},
	{
		Name: "the gate forgets whom it waits for", File: "sample.go",
		From: "return p.last, slices.Clone(s.snapshot.Open[:open])", To: "return p.last, nil",
	},
	{
		Name: "a limit that strikes among late commits moves nothing back", File: "cursor.go",
		From: "l.position = r.UpTo //", To: "l.position = max(b.Position, r.UpTo) //",
		Args: []string{"-cursor.first", "15200"},
	},
	{
		Name: "another server is not noticed", File: "cursor.go",
		From: "if c.server.known && (", To: "if false && (",
		Args: []string{"-cursor.first", "1400"},
	},
	{
		Name: "only the lanes that found out hear of another server", File: "cursor.go",
		From: "case l.server != c.generation:", To: "case f.generation != c.generation:",
		Args: []string{"-cursor.first", "20600"},
	},
	{
		Name: "a new lease goes on where the last one was", File: "cursor.go",
		From: "if l != nil && l.epoch == w.Epoch {", To: "if l != nil {",
		Args: []string{"-cursor.first", "1200"},
	},
	{
		Name: "a rewind is lost", File: "cursor.go",
		From: "\t\t\tl.back(w.RewindFrom)\n", To: "",
	},
	{
		Name: "a rewind leaves the mark where it is", File: "cursor.go",
		From: "\tl.mark = min(l.mark, l.position)\n", To: "",
	},
	{
		Name: "a rewind leaves the gate where it is", File: "cursor.go",
		From: "\tl.gate = min(l.gate, l.position)\n", To: "",
	},
	{
		Name: "a rewind forgets that it wants returned records again", File: "cursor.go",
		From: "\tkeep, _ := slices.BinarySearch(l.returned, l.position+1)\n\tl.returned = l.returned[:keep:keep]\n", To: "",
	},
	{
		Name: "returned records above a cut stay out", File: "cursor.go",
		From: "slices.BinarySearch(l.returned, l.position+1); keep <", To: "slices.BinarySearch(l.returned, Above); keep <",
		Args: []string{"-cursor.first", "1500"},
	},
	{
		Name: "rewinds that got lost are not made up for", File: "cursor.go",
		From: "\t\tl.forgot = true\n\t\tl.back(1)\n", To: "",
	},
}

// The model has to find an interleaving in which each broken rule loses or reorders events.
func TestCursor_MutantsAreCaught(t *testing.T) {
	t.Parallel()
	for i := range mutants {
		mutants[i].Test = "KeepsOrderAndLosesNothing"
		mutants[i].Args = append([]string{"-cursor.seeds", "60000"}, mutants[i].Args...)
	}
	mutation.Run(t, "seed ", mutants)
}
