package cursor_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mutants breaks one rule each. Those with args break a rule that SQL keeps, in the model's database; the others change
// the source of the cursor.
var mutants = []struct {
	name           string
	file, from, to string
	args           []string
	first          int // the seed to begin with, where it takes many to hit on the rule
}{
	{name: "an id is drawn before the xid", args: []string{"-cursor.broken", "idfirst"}, first: 9100},
	{name: "a sample has the snapshot's xmax in place of a xid", args: []string{"-cursor.broken", "xmax"}},
	{name: "a row is settled by its id alone", args: []string{"-cursor.broken", "byid"}},
	{
		name: "the mark moves before the fetch that it is for", file: "cursor.go",
		from:  "Mark: l.mark, Gate: max(l.gate, l.mark),",
		to:    "Mark: max(l.mark, min(f.settled, l.position)), Gate: max(l.gate, l.mark, min(f.settled, l.position)),",
		first: 22000,
	},
	{
		name: "the position is the lower bound", file: "cursor.go",
		from: "Mark: l.mark, Gate: max(l.gate, l.mark),", to: "Mark: l.position, Gate: l.position,",
	},
	{
		name: "what is behind the gate is never read", file: "cursor.go",
		from: "f.Few = union(f.Few, l.few)", to: "f.Few = nil",
	},
	{
		name: "the gate moves before the fetch that it is for", file: "cursor.go",
		from: "Gate: max(l.gate, l.mark),", to: "Gate: max(min(f.gate, l.position), l.mark),",
	},
	{
		name: "the gate takes a sample above xmax", file: "sample.go",
		from: "if p.xid > s.snapshot.Xmax {", to: "if false {",
	},
	{
		name: "the gate forgets whom it waits for", file: "sample.go",
		from: "return p.last, slices.Clone(s.snapshot.Open[:open])", to: "return p.last, nil",
	},
	{
		name: "a limit that strikes among late commits moves nothing back", file: "cursor.go",
		from: "l.position = r.UpTo //", to: "l.position = max(b.Position, r.UpTo) //",
		first: 15200,
	},
	{
		name: "another server is not noticed", file: "cursor.go",
		from: "if c.server.known && (", to: "if false && (",
		first: 1400,
	},
	{
		name: "only the lanes that found out hear of another server", file: "cursor.go",
		from: "case l.server != c.generation:", to: "case f.generation != c.generation:",
		first: 20600,
	},
	{
		name: "a new lease goes on where the last one was", file: "cursor.go",
		from: "if l != nil && l.epoch == w.Epoch {", to: "if l != nil {",
		first: 1200,
	},
	{
		name: "a rewind is lost", file: "cursor.go",
		from: "\t\t\tl.back(w.RewindFrom)\n", to: "",
	},
	{
		name: "a rewind leaves the mark where it is", file: "cursor.go",
		from: "\tl.mark = min(l.mark, l.position)\n", to: "",
	},
	{
		name: "a rewind leaves the gate where it is", file: "cursor.go",
		from: "\tl.gate = min(l.gate, l.position)\n", to: "",
	},
	{
		name: "a rewind forgets that it wants returned records again", file: "cursor.go",
		from: "\tkeep, _ := slices.BinarySearch(l.returned, l.position+1)\n\tl.returned = l.returned[:keep:keep]\n", to: "",
	},
	{
		name: "returned records above a cut stay out", file: "cursor.go",
		from: "slices.BinarySearch(l.returned, l.position+1); keep <", to: "slices.BinarySearch(l.returned, Above); keep <",
		first: 1500,
	},
	{
		name: "rewinds that got lost are not made up for", file: "cursor.go",
		from: "\t\tl.forgot = true\n\t\tl.back(1)\n", to: "",
	},
}

// TestCursor_MutantsAreCaught compiles the package with one rule changed at a time and expects the model to fail.
func TestCursor_MutantsAreCaught(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the package once for each mutant")
	}
	for _, mutant := range mutants {
		t.Run(mutant.name, func(t *testing.T) {
			args := append([]string{"test", "-run", "KeepsOrderAndLosesNothing"}, overlay(t, mutant.file, mutant.from, mutant.to)...)
			args = append(args, ".", "-cursor.seeds", "60000", "-cursor.first", strconv.Itoa(mutant.first))
			out, err := exec.CommandContext(t.Context(), "go", append(args, mutant.args...)...).CombinedOutput()
			if err == nil {
				t.Fatalf("the model did not notice:\n%s", out)
			}
			if !strings.Contains(string(out), "seed ") {
				t.Fatalf("failed for another reason:\n%s", out)
			}
			if i := strings.Index(string(out), "seed "); testing.Verbose() {
				t.Log(strings.SplitN(string(out[i:]), "\n", 2)[0])
			}
		})
	}
}

// overlay returns the argument that makes the go command see the changed file.
func overlay(t *testing.T, file, from, to string) []string {
	t.Helper()
	if file == "" {
		return nil
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), from); n != 1 {
		t.Fatalf("%s contains the text to change %d times, want once:\n%s", file, n, from)
	}
	dir := t.TempDir()
	changed, list := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-overlay", list}
}
