package main_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/postgres"
	"github.com/go-outbox/outbox/store/sqlite"
)

// keeper is a store that has remembered something, and its URL.
type keeper struct {
	core.FingerprintKeeper
	url string
}

// remember makes the store remember the fingerprint for a destination, in the place of any other.
func (k keeper) remember(t *testing.T, broker, destination, fingerprint string) {
	t.Helper()
	if err := k.AcceptFingerprint(t.Context(), broker, destination, fingerprint); err != nil {
		t.Fatal(err)
	}
}

// remembered is what the store has for a destination, and "" when it has nothing.
func (k keeper) remembered(t *testing.T, broker, destination string) string {
	t.Helper()
	all, err := k.FingerprintKeeper.(interface { //nolint:errcheck // both stores have it
		Fingerprints(ctx context.Context) (map[ordering.Outlet]string, error)
	}).Fingerprints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all[ordering.Outlet{Broker: broker, Destination: destination}]
}

func newSQLiteKeeper(t *testing.T) keeper {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return keeper{store, "sqlite://" + filepath.ToSlash(path)}
}

func newPostgresKeeper(t *testing.T) keeper {
	t.Helper()
	url, _ := realPostgres(t)
	table := "cmd_test_" + strings.ToLower(rand.Text()[:8])
	store, err := postgres.Open(t.Context(), postgres.Config{DSN: url, Table: table})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	joint := "?"
	if strings.Contains(url, "?") {
		joint = "&"
	}
	url += joint + "table=" + table
	t.Cleanup(func() { outbox(t, "migrate", "down", "--to", "0", "--yes", "--store", url) })
	return keeper{store, url}
}

func TestStrategyAccept(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) keeper{"sqlite": newSQLiteKeeper, "postgres": newPostgresKeeper} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testStrategyAccept(t, open(t))
		})
	}
}

func testStrategyAccept(t *testing.T, store keeper) {
	t.Helper()
	if got := outbox(t, "migrate", "up", "--store", store.url); got.code != 0 {
		t.Fatalf("migrate: %+v", got)
	}
	accept := func(more ...string) result {
		args := append([]string{"strategy", "accept", "--store", store.url, "--broker", "sqs://127.0.0.1:1"}, more...)
		return outbox(t, args...)
	}
	for _, more := range [][]string{nil, {"--topic", "orders", "--destination", "orders.fifo"}, {"--topic", "orders", "--of", "jobs"}} {
		if got := accept(more...); got.code != 2 || !strings.Contains(got.errOut, "--destination") {
			t.Errorf("%v: %+v; want code 2", more, got)
		}
	}
	if got := accept("--topic", "orders"); got.code != 3 || !strings.Contains(got.errOut, "the store knows no destination") {
		t.Errorf("before anything is published: %+v", got)
	}

	before := ordering.Shards{}.Fingerprint()
	const now = "message-group/v1 of a FIFO queue"
	store.remember(t, "", "orders.fifo", before)
	store.remember(t, "", "bills.fifo", before)
	// The topic is led to its queue, as the dispatcher does it.
	if got := accept("--topic", "orders"); got.code != 0 || got.out != "orders.fifo: "+now+", was "+before+"\n" ||
		store.remembered(t, "", "orders.fifo") != now {
		t.Errorf("accept a topic: %+v; the store has %q", got, store.remembered(t, "", "orders.fifo"))
	}
	if got := accept("--topic", "orders"); got.code != 0 || got.out != "orders.fifo: "+now+" already\n" {
		t.Errorf("again: %+v", got)
	}
	if got := accept("--destination", "bills.fifo"); got.code != 0 || store.remembered(t, "", "bills.fifo") != now {
		t.Errorf("accept a destination: %+v; the store has %q", got, store.remembered(t, "", "bills.fifo"))
	}

	// What is misspelt is not remembered.
	for flag, name := range map[string]string{"--topic": "ordres", "--destination": "orders"} {
		got := accept(flag, name)
		if got.code != 3 || got.out != "" || !strings.Contains(got.errOut, "nothing to accept; the store knows bills.fifo, orders.fifo\n") {
			t.Errorf("%s %s: %+v; want code 3 and what there is", flag, name, got)
		}
		for _, destination := range []string{name, name + ".fifo"} {
			if got := store.remembered(t, "", destination); got != "" && destination != "orders.fifo" {
				t.Errorf("%s %s: the store has %q for %s", flag, name, got, destination)
			}
		}
	}

	store.remember(t, "", "orders.fifo", "switching: "+before+" -> "+now)
	if got := accept("--topic", "orders"); got.code != 1 || !strings.Contains(got.errOut, "being resharded") {
		t.Errorf("in the middle of a resharding: %+v", got)
	}
}

// With several brokers a topic goes where the routes lead it. A destination says its broker only where that is open.
func TestStrategyAcceptOfSeveralBrokers(t *testing.T) {
	t.Parallel()
	store := newSQLiteKeeper(t)
	file := writeConfig(t, fmt.Sprintf(`
store: %q
brokers:
  jobs: "sqs://127.0.0.1:1"
  bills: "sqs://127.0.0.1:2"
  trial: {type: memory}
routes: [{match: "jobs*", broker: jobs}, {match: "bills*", broker: bills}]
`, store.url))
	if got := outbox(t, "migrate", "up", "-c", file); got.code != 0 {
		t.Fatalf("migrate: %+v", got)
	}
	for _, o := range []ordering.Outlet{
		{Destination: "before.fifo"},
		{Broker: "jobs", Destination: "jobs.fifo"},
		{Broker: "jobs", Destination: "x.fifo"},
		{Broker: "bills", Destination: "x.fifo"},
		{Broker: "bills", Destination: "bills.fifo"},
		{Broker: "trial", Destination: "y"},
	} {
		store.remember(t, o.Broker, o.Destination, "of before")
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"--topic jobs", 0, "jobs.fifo of broker jobs: message-group/v1 of a FIFO queue, was of before"},
		{"--destination bills.fifo", 0, "bills.fifo of broker bills: "},
		{"--destination x.fifo", 2, "--of: is missing; destination x.fifo is at the brokers bills, jobs"},
		{"--destination x.fifo --of bills", 0, "x.fifo of broker bills: "},
		{"--destination y", 2, `--of: the configuration has no broker "trial" with an ordering strategy`},
		{"--destination bills.fifo --of jobs", 3, "destination bills.fifo of broker jobs yet"},
		{"--destination before.fifo", 3, "the store knows bills.fifo of broker bills, jobs.fifo of broker jobs, x.fifo of broker bills, x.fifo of broker jobs, y of"},
		{"--topic other", 2, `--topic: the broker takes no events of topic "other": `},
	} {
		got := outbox(t, append([]string{"strategy", "accept", "-c", file}, strings.Fields(test.args)...)...)
		if got.code != test.code || !strings.Contains(got.out+got.errOut, test.want) {
			t.Errorf("%s: %+v; want code %d and %q", test.args, got, test.code, test.want)
		}
	}
	for o, want := range map[ordering.Outlet]string{{Broker: "jobs", Destination: "x.fifo"}: "of before", {Broker: "jobs", Destination: "bills.fifo"}: ""} {
		if got := store.remembered(t, o.Broker, o.Destination); got != want {
			t.Errorf("%v has %q, want %q", o, got, want)
		}
	}
}
