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
		{args: []string{"status"}, code: 3, out: "pending", errOut: "outbox migrate up"},
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
