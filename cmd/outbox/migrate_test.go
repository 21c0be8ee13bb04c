package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	store := "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db"))
	for _, step := range []struct {
		args    []string
		code    int
		out     string
		errOut  string
		exactly bool
	}{
		{args: []string{"status"}, code: 3, errOut: "shop.db: there is no such file; `outbox migrate up` makes it", exactly: true},
		{args: []string{"up"}, out: "done: 1 outbox\nthe tables are at version 1\n", exactly: true},
		{args: []string{"up"}, out: "the tables are at version 1\n", exactly: true},
		{args: []string{"up", "--to", "99"}, code: 2, errOut: "--to"},
		{args: []string{"status"}, out: "done"},
		{args: []string{"down"}, code: 2, errOut: "--yes"},
		{args: []string{"down", "--to", "5", "--yes"}, code: 2, errOut: "--to"},
		{args: []string{"down", "--yes"}, out: "the tables are at version 0"},
		{args: []string{"status"}, code: 3, out: "pending"},
		{args: []string{"sideways"}, code: 2},
	} {
		got := outbox(t, append([]string{"migrate", "--store", store}, step.args...)...)
		if got.code != step.code || !strings.Contains(got.out, step.out) || !strings.Contains(got.errOut, step.errOut) ||
			step.exactly && got.out != step.out {
			t.Errorf("migrate %v: got %+v; want %+v", step.args, got, step)
		}
	}
}

// A name that is misspelt must not look like an outbox without events, and leave an empty file behind.
func TestNoFileIsMadeButByMigrateUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop #1.db")
	plain := writeConfig(t, "store: {type: sqlite, sqlite: {path: '"+filepath.ToSlash(path)+"'}}\nbroker: {type: memory}\n")
	uri := writeConfig(t, "store: {type: sqlite, sqlite: {path: 'file:"+filepath.ToSlash(filepath.Dir(path))+"/shop%20%231.db?cache=private'}}\n"+
		"broker: {type: memory}\n")
	for _, file := range []string{plain, uri} {
		for _, test := range []struct {
			args string
			code int
		}{
			{"dead count", 1},
			{"dead list", 1},
			{"dead requeue --all", 1},
			{"keys unblock --aggregate-type order --aggregate-id ord_1", 1},
			{"strategy accept --topic orders", 1},
			{"migrate down --yes", 1},
			{"migrate status", 3},
			{"run --once", 1},
		} {
			got := outbox(t, append(strings.Fields(test.args), "-c", file)...)
			if got.code != test.code || !strings.Contains(got.errOut, path+": there is no such file; `outbox migrate up` makes it") {
				t.Errorf("%s: got %+v; want code %d and what to do", test.args, got, test.code)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Fatalf("%s has made the file: %v", test.args, err)
			}
		}
	}
	for _, file := range []string{uri, plain} {
		if got := outbox(t, "migrate", "up", "-c", file); got.code != 0 {
			t.Fatalf("migrate up: %+v", got)
		}
		if got := outbox(t, "dead", "count", "-c", file); got.code != 0 || got.out != "0\n" {
			t.Errorf("dead count: got %+v", got)
		}
	}
}

func TestMigratePrintNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none", "shop.db")
	store := "sqlite://" + filepath.ToSlash(path) + "?table=events"
	up := outbox(t, "migrate", "print", "--store", store)
	if up.code != 0 || !strings.Contains(up.out, `CREATE TABLE "events"`) || up.errOut != "" {
		t.Errorf("print: got %+v", up)
	}
	down := outbox(t, "migrate", "print", "--down", "--store", store)
	if down.code != 0 || !strings.Contains(down.out, `DROP TABLE "events"`) || strings.Contains(down.out, "CREATE") {
		t.Errorf("print --down: got %+v", down)
	}
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("something was made at %s: %v", path, err)
	}

	// What is printed makes tables that the program works with.
	shop := newShop(t)
	if _, err := shop.db.ExecContext(t.Context(), up.out); err != nil {
		t.Fatalf("the printed SQL: %v", err)
	}
	_, kafka := startKafka(t)
	got := outbox(t, "run", "--once", "--store", shop.url()+"?table=events", "--broker", kafka)
	if got.code != 0 {
		t.Errorf("run on the printed tables: got %+v", got)
	}
}

// Neither does PostgreSQL's, whose parameters stand in its URL.
func TestMigratePrintOfPostgres(t *testing.T) {
	t.Parallel()
	const store = "postgres://app:hunter2@127.0.0.1:1/shop?table=events"
	const byMonth = "PARTITION BY RANGE (created_at)"
	plain := outbox(t, "migrate", "print", "--store", store)
	if plain.code != 0 || !strings.Contains(plain.out, `"events"`) {
		t.Errorf("print: got %+v", plain)
	}
	months := outbox(t, "migrate", "print", "--store", store+"&partitioned=true")
	if months.code != 0 || strings.Count(months.out, byMonth) != strings.Count(plain.out, byMonth)+1 {
		t.Errorf("print with partitioned: got %+v", months)
	}
	wrong := outbox(t, "migrate", "print", "--store", store+"&partitioned=monthly")
	if wrong.code != 2 || !strings.Contains(wrong.errOut, `partitioned: "monthly" is not true or false`) || strings.Contains(wrong.errOut, "hunter2") {
		t.Errorf("print with a wrong parameter: got %+v", wrong)
	}
}

func TestMigrateOfAStoreWithoutTables(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"up", "down", "status", "print"} {
		if got := outbox(t, "migrate", command, "--store", "memory:"); got.code != 2 || !strings.Contains(got.errOut, "no tables") {
			t.Errorf("migrate %s: got %+v; want code 2", command, got)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := outbox(t, "version"); got.code != 0 || !strings.HasPrefix(got.out, "outbox ") || strings.Count(got.out, "\n") != 1 {
		t.Errorf("got %+v; want one line", got)
	}
}

func TestHelpAndUnknownCommands(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "migrate", "dead", "keys", "version"} {
		if got := outbox(t, "--help"); got.code != 0 || !strings.Contains(got.out, command) {
			t.Errorf("help does not name %s: %+v", command, got)
		}
		if got := outbox(t, command, "--help"); got.code != 0 || got.out == "" {
			t.Errorf("%s --help: %+v", command, got)
		}
	}
	if got := outbox(t, "rnu"); got.code != 2 || !strings.Contains(got.errOut, "known are") {
		t.Errorf("unknown command: %+v", got)
	}
}
