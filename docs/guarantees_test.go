package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/store/storetest"
)

var proof = regexp.MustCompile("`([^`]+)`")

// TestGuaranteesAreProved: each row of the faults names tests, and they are in the folder that it says.
func TestGuaranteesAreProved(t *testing.T) {
	t.Parallel()
	known := map[string]map[string]bool{"kit": {}}
	for _, c := range storetest.Cases() {
		known["kit"][c.Name] = true
	}
	for _, c := range brokertest.Cases() {
		known["kit"][c.Name] = true
	}
	rows := 0
	for line := range strings.Lines(read(t, "guarantees.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || strings.Contains(line, "shown by") {
			continue
		}
		rows++
		for group := range strings.SplitSeq(cells[3], "; ") {
			folder, tests, _ := strings.Cut(strings.TrimSpace(group), ": ")
			if known[folder] == nil {
				known[folder] = testsIn(t, folder)
			}
			names := proof.FindAllStringSubmatch(tests, -1)
			if len(names) == 0 {
				t.Errorf("%q names no test in %q", cells[0], group)
			}
			for _, name := range names {
				test := name[1]
				if folder != "kit" {
					test, _, _ = strings.Cut(test, "/")
				}
				if !known[folder][test] {
					t.Errorf("%q: there is no test %s in %s", cells[0], name[1], folder)
				}
			}
		}
	}
	if rows < 60 {
		t.Errorf("%d rows: are they still recognised?", rows)
	}
}

// testsIn returns the tests of a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s: no tests (%v)", folder, err)
	}
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example)\w*)\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range function.FindAllStringSubmatch(string(text), -1) {
			tests[found[1]] = true
		}
	}
	return tests
}
