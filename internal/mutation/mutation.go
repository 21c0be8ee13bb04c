// Package mutation proves that tests can fail: it compiles a package with one rule broken and expects a test to notice.
// The sources stay as they are; the go command sees the change through an overlay. A mutant whose text is no longer
// found fails, so that the list cannot rot.
package mutation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Mutant is one broken rule.
type Mutant struct {
	// Name says what is wrong with it.
	Name string
	// File is the source to change, relative to the package's directory; empty when only Args break something.
	File string
	// From must stand in the file exactly once; To takes its place.
	From, To string
	// Test is the pattern of the tests that must notice.
	Test string
	// Args are further arguments of the test.
	Args []string
}

// Run runs each mutant of the package in the current directory as a subtest. Every one of them has to fail a test that
// says so with a line that contains sign. It does nothing with -short, because it compiles the package for each.
func Run(t *testing.T, sign string, mutants []Mutant) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles the package once for each mutant")
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			args := []string{"test", "-count", "1", "-run", m.Test}
			if m.File != "" {
				args = append(args, "-overlay", overlay(t, m))
			}
			args = append(append(args, "."), m.Args...)
			out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput() //nolint:gosec // the caller's own tests
			if err == nil {
				t.Fatalf("no test noticed:\n%s", out)
			}
			if !strings.Contains(string(out), sign) {
				t.Fatalf("failed for another reason:\n%s", out)
			}
		})
	}
}

// overlay writes the changed source and returns the file that tells the go command of it.
func overlay(t *testing.T, m Mutant) string {
	t.Helper()
	source, err := os.ReadFile(m.File)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.From); n != 1 {
		t.Fatalf("%s contains the text to change %d times, want once:\n%s", m.File, n, m.From)
	}
	dir := t.TempDir()
	changed, list := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(m.File)
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{changed: strings.Replace(string(source), m.From, m.To, 1), list: string(replace)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return list
}
