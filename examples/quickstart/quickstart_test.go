package main

import (
	"database/sql"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-outbox/outbox/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// twoEach is a plan of n orders with two events each.
func twoEach(n int) plan {
	p := planOrders(n)
	for i := range p {
		p[i].changes = changes[:2]
	}
	return p
}

func TestNothingIsLostInventedOrReordered(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		dispatchers int
		store       string // the service that it needs, if any
		broker      string
	}{
		{name: "one dispatcher", dispatchers: 1},
		{name: "three dispatchers", dispatchers: 3},
		{name: "Kafka", dispatchers: 1, broker: "kafka"},
		{name: "RabbitMQ", dispatchers: 3, broker: "rabbitmq"},
		{name: "SQS", dispatchers: 3, broker: "sqs"},
		{name: "SQS in this process", dispatchers: 3, broker: embeddedSQS},
		{name: "PostgreSQL", dispatchers: 3, store: "postgres"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			opts := options{
				dispatchers: tt.dispatchers, storeURL: serviceURL(t, tt.store), brokerURL: serviceURL(t, tt.broker), patience: time.Minute,
			}
			got, err := run(t.Context(), opts, twoEach(20), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			rest := " delivered=40 lost=0 phantom=0 out_of_order=0 repeats=0"
			if line := got.String(); !strings.HasPrefix(line, "quickstart: committed=40 rolled_back=") ||
				!strings.HasSuffix(line, rest) || !got.ok() {
				t.Errorf("last line %q, ok %t; want the end %q", line, got.ok(), rest)
			}
		})
	}
}

// TestTheCheckCanFail puts faults between the broker and the consumer, and expects the check to name each.
func TestTheCheckCanFail(t *testing.T) {
	t.Parallel()
	type handler = func(delivery)
	tests := []struct {
		name   string
		tamper func() func(delivery, handler)
		want   verdict
	}{
		{"an event is dropped", func() func(delivery, handler) {
			dropped := false
			return func(d delivery, deliver handler) {
				if dropped {
					deliver(d)
				}
				dropped = true
			}
		}, verdict{committed: 20, delivered: 19, lost: 1}},
		{"the first event of each order comes second", func() func(delivery, handler) {
			first := map[string]*delivery{}
			return func(d delivery, deliver handler) {
				if first[d.order] == nil {
					first[d.order] = &d
				} else {
					deliver(d)
					deliver(*first[d.order])
				}
			}
		}, verdict{committed: 20, delivered: 20, outOfOrder: 10}},
		{"an event that never was", func() func(delivery, handler) {
			invented := false
			return func(d delivery, deliver handler) {
				deliver(d)
				if !invented {
					deliver(delivery{order: d.order, event: "invented"})
				}
				invented = true
			}
		}, verdict{committed: 20, delivered: 20, phantom: 1}},
		{"everything comes twice", func() func(delivery, handler) {
			return func(d delivery, deliver handler) {
				deliver(d)
				deliver(d)
			}
		}, verdict{committed: 20, delivered: 20, repeats: 20}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			opts := options{dispatchers: 1, patience: 2 * time.Second, tamper: tt.tamper()}
			got, err := run(t.Context(), opts, twoEach(10), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			got.rolledBack = 0 // left to chance
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if wantOK := tt.want.lost+tt.want.phantom+tt.want.outOfOrder == 0; got.ok() != wantOK {
				t.Errorf("ok() = %t, want %t", got.ok(), wantOK)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	books := map[string][]string{"a": {"a1", "a2", "a3"}, "b": {"b1"}}
	tests := []struct {
		name    string
		arrived string // events; each begins with its order
		want    verdict
	}{
		{"as committed", "a1 b1 a2 a3", verdict{committed: 4, delivered: 4}},
		{"nothing", "", verdict{committed: 4, lost: 4}},
		{"a later event first", "a2 a1 a3 b1", verdict{committed: 4, delivered: 4, outOfOrder: 1}},
		{"a gap is lost, not reordered", "a1 a3 b1", verdict{committed: 4, delivered: 3, lost: 1}},
		{"repeats out of order are repeats", "a1 a2 a3 a1 a2 b1", verdict{committed: 4, delivered: 4, repeats: 2}},
		{"of a transaction that rolled back", "a1 a2 a3 b1 b2", verdict{committed: 4, delivered: 4, phantom: 1}},
		{"of an unknown order, twice", "a1 a2 a3 b1 c1 c1", verdict{committed: 4, delivered: 4, phantom: 1, repeats: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var deliveries []delivery
			for event := range strings.FieldsSeq(tt.arrived) {
				deliveries = append(deliveries, delivery{order: event[:1], event: event})
			}
			if got := compare(books, deliveries, 0); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAGivenDatabaseIsLeftClean(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db"))
	if _, err := run(t.Context(), options{storeURL: url, dispatchers: 1, patience: time.Minute}, twoEach(3), io.Discard); err != nil {
		t.Fatal(err)
	}
	db, err := openDatabase(t.Context(), url, "another_run")
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	err = db.inTx(t.Context(), func(tx *sql.Tx, _ core.Enqueuer) error {
		return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name LIKE 'quickstart%'`).Scan(&tables)
	})
	if err != nil || tables != 0 {
		t.Errorf("%d tables of the run before are left, error %v; want none", tables, err)
	}
	if err := db.cleanUp(); err != nil {
		t.Error(err)
	}
}

func TestUnknownAddresses(t *testing.T) {
	t.Parallel()
	for _, opts := range []options{
		{storeURL: "mysql://root:hunter2@127.0.0.1/shop"},
		{brokerURL: "nats://guest:hunter2@127.0.0.1"},
		{brokerURL: "rabbitmqs://guest:hunter2@127.0.0.1"},
		{brokerURL: "amqp://guest:hunter2@127.0.0.1:1/"},
		{brokerURL: "sqs://guest:hunter2@127.0.0.1:1/path"},
		{brokerURL: "kafka://guest:hunter2@127.0.0.1"},
	} {
		_, err := run(t.Context(), opts, twoEach(1), io.Discard)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: error %v; want one, without the password", opts, err)
		}
	}
}

// serviceURL is the URL of a service that scripts/services started.
func serviceURL(t *testing.T, name string) string {
	t.Helper()
	if name == "" || name == embeddedSQS {
		return name
	}
	variable := "OUTBOX_TEST_" + strings.ToUpper(name) + "_URL"
	url := os.Getenv(variable)
	if url == "" {
		if strings.Contains(os.Getenv("OUTBOX_REQUIRE"), name) {
			t.Fatalf("%s is not set, and OUTBOX_REQUIRE names %s", variable, name)
		}
		t.Skipf("%s is not set; eval \"$(scripts/services up %s)\"", variable, name)
	}
	return url
}
