// Package archtest holds the dependency rules of this module.
package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/go-outbox/outbox"

// allowedClients names, for each adapter, the modules of other people that its
// non-test files may import. An adapter that is not listed may import none.
var allowedClients = map[string][]string{
	"store/sqlite":    {"modernc.org/sqlite"},
	"store/postgres":  {"github.com/jackc/pgx/v5"},
	"store/mysql":     {"github.com/go-sql-driver/mysql"},
	"broker/kafka":    {"github.com/twmb/franz-go"},
	"broker/rabbitmq": {"github.com/rabbitmq/amqp091-go"},
	"broker/sqs":      {"github.com/aws"},
}

// bare packages may import the standard library and the named packages of this
// module; everything below them is held to the same rule.
var bare = map[string][]string{
	"core":              {"core", "ordering"},
	"ordering":          {"ordering"},
	"inbox":             {"inbox", "core", "ordering"},
	"store/memstore":    {"store/memstore", "core", "ordering"},
	"broker/membroker":  {"broker/membroker", "core", "ordering"},
	"store/storetest":   {"store/storetest", "core", "ordering"},
	"broker/brokertest": {"broker/brokertest", "core", "ordering"},
}

// kits are packages below store/ and broker/ that are no adapters.
var kits = []string{"store/storetest", "broker/brokertest"}

// combiners may bring adapters together: programs, examples, and the kit that
// gives a user's tests an outbox in memory.
var combiners = []string{"cmd", "examples", "outboxtest"}

// goPackage is what "go list" tells of a package's non-test files.
type goPackage struct {
	ImportPath string
	Imports    []string // direct
	Deps       []string // direct and indirect
}

func TestDependencyRules(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, v := range violations(p) {
			t.Error(v)
		}
	}
}

// TestRulesCanFail shows the rules what they are there to find.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		path    string // below the module, like the imports that start with "./"
		imports []string
		deps    []string // beside the imports
		want    string   // part of the only violation; empty: none
	}{
		{name: "core on the standard library", path: "core", imports: []string{"context", "encoding/json", "./ordering"}},
		{name: "core on a client", path: "core", imports: []string{"github.com/twmb/franz-go/pkg/kgo"}, want: "core may import"},
		{name: "core on extended std", path: "core", imports: []string{"golang.org/x/sync/errgroup"}, want: "core may import"},
		{name: "core on a kit", path: "core", imports: []string{"./store/storetest"}, want: "core may import"},
		{name: "below core", path: "core/internal/x", imports: []string{"./internal/y"}, want: "core may import"},
		{name: "core on its own below", path: "core", imports: []string{"./core/internal/x"}},
		{name: "a name that starts alike", path: "core", imports: []string{"./core2"}, want: "core may import"},
		{name: "the module itself", path: "core", imports: []string{"."}, want: "core may import"},
		{name: "ordering on core", path: "ordering", imports: []string{"./core"}, want: "ordering may import"},
		{name: "inbox on core", path: "inbox", imports: []string{"./core", "database/sql"}},
		{name: "inbox on an adapter", path: "inbox", imports: []string{"./store/sqlite"}, want: "inbox may import"},
		{name: "kit on core", path: "store/storetest", imports: []string{"testing", "./core"}},
		{name: "kit on testify", path: "store/storetest", imports: []string{"github.com/stretchr/testify/require"}, want: "store/storetest may import"},
		{name: "kit on an adapter", path: "broker/brokertest", imports: []string{"./broker/membroker"}, want: "broker/brokertest may import"},
		{name: "memory store on an internal package", path: "store/memstore", imports: []string{"./internal/x"}, want: "store/memstore may import"},
		{name: "memory broker on a client", path: "broker/membroker", imports: []string{"github.com/twmb/franz-go/pkg/kgo"}, want: "broker/membroker may import"},

		{name: "adapter on its client", path: "broker/kafka", imports: []string{"./core", "github.com/twmb/franz-go/pkg/kgo"}},
		{name: "adapter on many modules of its client", path: "broker/sqs", imports: []string{"github.com/aws/aws-sdk-go-v2/service/sqs", "github.com/aws/smithy-go"}},
		{name: "adapter on another client", path: "broker/kafka", imports: []string{"github.com/IBM/sarama"}, want: "broker/kafka may import"},
		{name: "client that starts alike", path: "store/postgres", imports: []string{"github.com/jackc/pgx/v5x"}, want: "store/postgres may import"},
		{name: "below an adapter", path: "store/sqlite/internal/x", imports: []string{"github.com/mattn/go-sqlite3"}, want: "store/sqlite may import"},
		{name: "unlisted adapter on a client", path: "broker/nats", imports: []string{"github.com/nats-io/nats.go"}, want: "broker/nats may import"},
		{name: "adapter on a shared internal package", path: "store/mysql", imports: []string{"./internal/sqlstore"}},
		{name: "adapter on another adapter", path: "store/mysql", imports: []string{"./store/sqlite"}, want: "store/mysql depends on another adapter: store/sqlite"},
		{name: "adapter on another adapter, indirectly", path: "store/mysql", imports: []string{"./internal/x"}, deps: []string{"./broker/kafka"}, want: "another adapter: broker/kafka"},
		{name: "adapter on its own below", path: "store/mysql", imports: []string{"./store/mysql/internal/x"}},

		{name: "one adapter", path: "internal/x", imports: []string{"./store/sqlite", "./store/storetest"}},
		{name: "two stores", path: "internal/x", imports: []string{"./store/sqlite", "./store/memstore"}},
		{name: "two brokers", path: "internal/x", imports: []string{"./broker/kafka", "./broker/sqs"}, want: "brings adapters together: broker/kafka, broker/sqs"},
		{name: "a store and a broker", path: "internal/x", imports: []string{"./store/sqlite", "./broker/kafka"}, want: "brings adapters together: broker/kafka, store/sqlite"},
		{name: "a store and a broker, indirectly", path: "relay", imports: []string{"./store/sqlite"}, deps: []string{"./broker/kafka"}, want: "brings adapters together"},
		{name: "the module's root", path: "", imports: []string{"./store/sqlite", "./broker/kafka"}, want: "brings adapters together"},
		{name: "a program", path: "cmd/outbox", imports: []string{"./store/sqlite", "./broker/kafka", "./broker/sqs"}},
		{name: "an example", path: "examples/quickstart", imports: []string{"./store/sqlite", "./broker/kafka"}},
		{name: "the kit in memory", path: "outboxtest", imports: []string{"./store/memstore", "./broker/membroker"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := goPackage{ImportPath: full("./" + tt.path)}
			for _, i := range tt.imports {
				p.Imports = append(p.Imports, full(i))
			}
			p.Deps = slices.Clone(p.Imports)
			for _, d := range tt.deps {
				p.Deps = append(p.Deps, full(d))
			}
			got := violations(p)
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("violations = %q, want none", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("violations = %q, want one with %q", got, tt.want)
			}
		})
	}
}

// full turns "./x" into an import path of this module.
func full(path string) string {
	if path == "." || path == "./" {
		return module
	}
	if rest, ok := strings.CutPrefix(path, "./"); ok {
		return module + "/" + rest
	}
	return path
}

// violations checks one package against all rules.
func violations(p goPackage) []string {
	path, ok := local(p.ImportPath)
	if !ok {
		return nil
	}
	var found []string
	report := func(format string, args ...any) {
		found = append(found, p.ImportPath+": "+fmt.Sprintf(format, args...))
	}

	for owner, allowed := range bare {
		if !within(path, owner) {
			continue
		}
		for _, i := range p.Imports {
			if standard(i) {
				continue
			}
			if rest, ok := local(i); ok && slices.ContainsFunc(allowed, func(a string) bool { return within(rest, a) }) {
				continue
			}
			report("%s may import the standard library and %s alone, not %s", owner, strings.Join(allowed, ", "), i)
		}
		return found // A stricter rule than those that follow.
	}

	if own := adapter(path); own != "" {
		for _, i := range p.Imports {
			if _, ok := local(i); ok || standard(i) {
				continue
			}
			if !slices.ContainsFunc(allowedClients[own], func(m string) bool { return within(i, m) }) {
				report("%s may import these modules of other people alone: %q, not %s", own, allowedClients[own], i)
			}
		}
		for _, other := range adapters(p.Deps) {
			if other != own {
				report("%s depends on another adapter: %s", own, other)
			}
		}
		return found
	}

	if slices.ContainsFunc(combiners, func(c string) bool { return within(path, c) }) {
		return found
	}
	used := adapters(p.Deps)
	brokers := 0
	for _, a := range used {
		if within(a, "broker") {
			brokers++
		}
	}
	if brokers > 1 || brokers == 1 && len(used) > 1 {
		report("it brings adapters together: %s; only %s may", strings.Join(used, ", "), strings.Join(combiners, ", "))
	}
	return found
}

// local gives a package's path below this module.
func local(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// within tells whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// standard tells whether an import is of the standard library: the first part
// of every other path has a dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// adapter gives the adapter that a path of this module belongs to, like
// "broker/kafka", or "".
func adapter(path string) string {
	parts := strings.SplitN(path, "/", 3)
	if len(parts) < 2 || parts[0] != "store" && parts[0] != "broker" {
		return ""
	}
	name := parts[0] + "/" + parts[1]
	if slices.Contains(kits, name) {
		return ""
	}
	return name
}

// adapters gives the adapters among the imports, each once, sorted.
func adapters(imports []string) []string {
	var found []string
	for _, i := range imports {
		if path, ok := local(i); ok {
			if a := adapter(path); a != "" {
				found = append(found, a)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	// "go test" knows the files that a test reads itself, not those that the
	// programs it runs read: without this walk it would answer from its cache
	// after another package's imports have changed.
	err := filepath.WalkDir("../..", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "tools") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var packages []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list's answer: %v", err)
		}
		packages = append(packages, p)
	}
	if !slices.ContainsFunc(packages, func(p goPackage) bool { return p.ImportPath == module+"/internal/archtest" }) {
		t.Fatalf("go list did not see this package: %d packages, standard error %q", len(packages), stderr.Bytes())
	}
	return packages
}
