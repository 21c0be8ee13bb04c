// Package docs_test holds the documentation to what the code is: its snippets, tables, links and names of tests.
package docs_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/storetest"
)

const root = ".."

// pages returns README.md and all of docs, by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("pages: %v, %v", paths, err)
	}
	pages := map[string]string{}
	for _, path := range append(paths, "../README.md") {
		pages[filepath.Join("docs", path)] = read(t, path)
	}
	return pages
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	goBlock = regexp.MustCompile("(?ms)^(?:<!-- from (\\S+) -->\n)?```go\n(.*?)^```$")
	link    = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	inTicks = regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Za-z_][A-Za-z0-9_]*(?:/[A-Za-z0-9_ ]+)?|[A-Z][A-Za-z]+/[A-Z][A-Za-z]+)`")
)

// TestSnippetsAreCode: each Go snippet stands in a file that is compiled and tested, and that a comment before it names:
// "<!-- from examples/readme/main.go -->".
func TestSnippetsAreCode(t *testing.T) {
	t.Parallel()
	for page, text := range pages(t) {
		blocks := goBlock.FindAllStringSubmatch(text, -1)
		if n := strings.Count(text, "```go\n"); n != len(blocks) {
			t.Errorf("%s: %d of %d Go snippets were understood", page, len(blocks), n)
		}
		for _, block := range blocks {
			source, snippet := block[1], block[2]
			if source == "" {
				t.Errorf("%s: no comment <!-- from FILE --> names the source of:\n%s", page, snippet)
				continue
			}
			if !contains(read(t, filepath.Join(root, source)), snippet) {
				t.Errorf("%s: this is not in %s:\n%s", page, source, snippet)
			}
		}
	}
}

// contains looks for the lines of a snippet in a file, at any depth. Blank lines and lines of comment do not count, so
// that a snippet can show an interface without its prose.
func contains(file, snippet string) bool {
	code, want := bare(file, 0), bare(snippet, 0)
	for depth := range 4 {
		if strings.Contains(code, "\n"+bare(want, depth)) {
			return true
		}
	}
	return false
}

// bare drops blank lines and lines of comment, and indents the others.
func bare(text string, depth int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "//") {
			b.WriteString(strings.Repeat("\t", depth) + line)
		}
	}
	return b.String()
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for page, text := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target := found[1]
			if strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), target)); err != nil {
				t.Errorf("%s: dead link: %v", page, err)
			}
		}
	}
}

// TestNamedTestsExist: what the documentation names as proof is there. Cases of the kits are named as "Group/Rule".
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, c := range storetest.Cases() {
		known[c.Name] = true
	}
	for _, c := range brokertest.Cases() {
		known[c.Name] = true
	}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, found := range function.FindAllStringSubmatch(read(t, path), -1) {
			known[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range pages(t) {
		for _, found := range inTicks.FindAllStringSubmatch(text, -1) {
			name := found[1]
			if top, _, isSub := strings.Cut(name, "/"); isSub && strings.HasPrefix(name, "Test") {
				name = top
			}
			if !known[name] {
				t.Errorf("%s: there is no test %q", page, found[1])
			}
		}
	}
	if n := len(inTicks.FindAllString(read(t, "guarantees.md"), -1)); n < 20 {
		t.Errorf("guarantees.md names %d tests: are they still recognised?", n)
	}
}

// TestConfigurationTable: the table of core.Config has a row for each field, with its default.
func TestConfigurationTable(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z.]*)` \\| ([^|]*) \\|")
	page := read(t, "configuration.md")
	_, section, _ := strings.Cut(page, "\n## core.Config\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, found := range row.FindAllStringSubmatch(section, -1) {
		documented[found[1]] = strings.TrimSpace(found[2])
	}
	actual := map[string]string{}
	defaults(reflect.ValueOf(core.Config{}.WithDefaults()), "", actual)
	for _, field := range slices.Sorted(maps.Keys(actual)) {
		switch got, ok := documented[field]; {
		case !ok:
			t.Errorf("core.Config.%s is not in the table", field)
		case actual[field] != "" && got != actual[field]:
			t.Errorf("core.Config.%s: the table says %q, the default is %q", field, got, actual[field])
		}
		delete(documented, field)
	}
	for field := range documented {
		t.Errorf("the table has %s, core.Config has not", field)
	}
}

// defaults collects the fields of a configuration by path. What has no short form of its default has an empty one.
func defaults(v reflect.Value, path string, into map[string]string) {
	for i := range v.NumField() {
		field, name := v.Field(i), path+v.Type().Field(i).Name
		switch value := field.Interface().(type) {
		case time.Duration:
			into[name] = short(value)
		case string, int, float64:
			into[name] = fmt.Sprint(value)
		default:
			if field.Kind() == reflect.Struct {
				defaults(field, name+".", into)
				continue
			}
			into[name] = ""
		}
	}
}

// short writes 1m0s as 1m.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}
