package mux_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/mux"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// The kit sees a mux as the one broker behind a catch-all route, beside another that gets nothing.
func TestConformance(t *testing.T) {
	t.Parallel()
	const limit = 8 << 10
	brokertest.Run(t, brokertest.Harness{
		TellsNilFromEmpty: true,
		Token:             func(r *core.Record) string { return r.AggregateID },
		Oversize:          limit,
		Start: func(brokertest.T) brokertest.Server {
			server, faults := membroker.NewServer("topic-0"), &membroker.Faults{}
			topics := 0
			return brokertest.Server{
				Open: func() (core.Broker, error) {
					return mux.New(mux.Config{
						Brokers: map[string]core.Broker{
							"main":  membroker.New(membroker.Config{Server: server, Script: faults.Script, MaxMessageBytes: limit, MaxInFlight: 4}),
							"other": membroker.New(membroker.Config{MaxInFlight: 4}),
						},
						Routes: []mux.Route{{Match: "other.*", Broker: "other"}, {Match: "*", Broker: "main"}},
					})
				},
				Topic: func() string {
					topics++
					topic := fmt.Sprint("topic-", topics)
					server.Create(topic)
					return topic
				},
				Read: func(topic string) (out []brokertest.Message) {
					for _, m := range server.Messages(topic) {
						out = append(out, brokertest.Message{Token: m.Token, Payload: m.Payload, Headers: m.Headers})
					}
					return out
				},
				MissingTopic:  func() string { return "missing" },
				CreateTopic:   func(topic string) { server.Create(topic) },
				Refuse:        faults.Refuse,
				RefuseMessage: faults.RefuseMessage,
				LoseReply:     faults.LoseReply,
				Hang:          faults.Hang,
				Down:          server.Stop,
				Up:            server.Start,
			}
		},
	})
}

// While one broker is down, the topics of the other flow, and the dispatcher stays ready.
func TestBroker_OneDownTheOtherFlows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{Lanes: 4})
		if err != nil {
			t.Fatal(err)
		}
		down, up := membroker.New(membroker.Config{}), membroker.New(membroker.Config{MaxInFlight: 3})
		down.Server().Stop()
		b, err := mux.New(mux.Config{
			Brokers: map[string]core.Broker{"jobs": down, "events": up},
			Routes:  []mux.Route{{Match: "jobs.*", Broker: "jobs"}, {Match: "events.*", Broker: "events"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		tx := store.Begin()
		for i := range 300 {
			topic := []string{"jobs.mail", "events.orders", "nowhere"}[i%3]
			if _, err := tx.Enqueue(t.Context(), core.Message{
				EventID: fmt.Sprint(i), Topic: topic, AggregateType: "thing", AggregateID: fmt.Sprint(i % 30), EventType: "changed",
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		d, err := core.NewDispatcher(store, b, core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		wait(time.Minute)
		if n := len(up.Messages("events.orders")); n != 100 {
			t.Errorf("%d of 100 at the broker that is up", n)
		}
		if h := d.Health(); !h.Ready || !strings.Contains(h.Reason, `the broker "jobs" is paused`) {
			t.Errorf("health %+v", h)
		}
		if row, _ := store.Row("2"); row.State != memstore.Parked || !strings.Contains(row.Reason, `no route matches the topic "nowhere"`) {
			t.Errorf("without a route: %s, %s", row.State, row.Reason)
		}
		down.Server().Start()
		wait(time.Minute)
		if n := len(down.Messages("jobs.mail")); n != 100 {
			t.Errorf("%d of 100 at the broker that was down", n)
		}
		if row, _ := store.Row("0"); row.Attempts != 0 {
			t.Errorf("the outage spent %d attempts", row.Attempts)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// wait lets virtual time pass, and returns when everybody else in the bubble waits for something.
func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func TestNew_ReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := mux.New(mux.Config{
		Brokers: map[string]core.Broker{"a": nil, "": membroker.New(membroker.Config{})},
		Routes:  []mux.Route{{Match: "[", Broker: "a"}, {Match: "x", Broker: "b"}, {Match: "x", Broker: "a"}},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{
		`Brokers["a"]: is nil`, "without a name", `Routes[0].Match: "["`, `no broker "b"; have: [ a]`, `Routes[2].Match: "x" is never reached`,
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if _, err := mux.New(mux.Config{}); err == nil || !strings.Contains(err.Error(), "Brokers: is empty") ||
		!strings.Contains(err.Error(), "Routes: is empty") {
		t.Errorf("the empty configuration: %v", err)
	}
}

func TestBroker_CheckNamesTheBrokerThatFails(t *testing.T) {
	t.Parallel()
	down := membroker.New(membroker.Config{})
	down.Server().Stop()
	b, err := mux.New(mux.Config{
		Brokers: map[string]core.Broker{"jobs": down, "events": membroker.New(membroker.Config{})},
		Routes:  []mux.Route{{Match: "*", Broker: "events"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context()); err == nil || !strings.Contains(err.Error(), `broker "jobs"`) || strings.Contains(err.Error(), "events") {
		t.Errorf("Check: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	p, err := b.Prepare(&core.Record{Message: core.Message{Topic: "orders", AggregateType: "order", AggregateID: "1", EventType: "created"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := b.PublishBatch(t.Context(), []core.Prepared{p}); !errors.Is(r[0].Err, core.ErrClosed) {
		t.Errorf("after Close: %+v", r[0])
	}
}

func TestBroker_TopologyGoesToTheTopicsBroker(t *testing.T) {
	t.Parallel()
	jobs, events := membroker.NewServer("unused"), membroker.NewServer("unused")
	b, err := mux.New(mux.Config{
		Brokers: map[string]core.Broker{
			"jobs": membroker.New(membroker.Config{Server: jobs}), "events": membroker.New(membroker.Config{Server: events}),
		},
		Routes: []mux.Route{{Match: "jobs.*", Broker: "jobs"}, {Match: "events.*", Broker: "events"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Verify(t.Context(), "jobs.mail", "events.orders", "nowhere")
	for _, part := range []string{`broker "jobs"`, "jobs.mail", `broker "events"`, "events.orders", `"nowhere"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if err := b.Declare(t.Context(), "jobs.mail", "events.orders"); err != nil {
		t.Fatal(err)
	}
	if !jobs.Exists("jobs.mail") || !events.Exists("events.orders") || events.Exists("jobs.mail") {
		t.Error("a topic was declared at the wrong broker")
	}
	if err := b.Verify(t.Context(), "jobs.mail", "events.orders"); err != nil {
		t.Error(err)
	}
}

// adopter is a broker with a strategy that it can change.
type adopter struct {
	*membroker.Broker
	asked, strategy string
	err             error
}

func (a *adopter) Fingerprint(_ context.Context, broker, destination string) (string, error) {
	a.asked = broker + "/" + destination
	return a.strategy, a.err
}

func (a *adopter) Adopt(_ context.Context, broker, destination, fingerprint string) (bool, error) {
	a.asked = broker + "/" + destination
	a.strategy = fingerprint
	return true, a.err
}

// Strategies are the business of the broker that is named, which knows nothing of names.
func TestBroker_StrategiesAreOfTheBrokerThatIsNamed(t *testing.T) {
	t.Parallel()
	shards := &adopter{Broker: membroker.New(membroker.Config{}), strategy: "one"}
	b, err := mux.New(mux.Config{
		Brokers: map[string]core.Broker{"shards": shards, "plain": membroker.New(membroker.Config{})},
		Routes:  []mux.Route{{Match: "*", Broker: "plain"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if adopted, err := b.Adopt(t.Context(), "shards", "orders", "two"); !adopted || err != nil || shards.asked != "/orders" {
		t.Errorf("Adopt: %t, %v; asked for %s", adopted, err, shards.asked)
	}
	if got, err := b.Fingerprint(t.Context(), "shards", "bills"); got != "two" || err != nil || shards.asked != "/bills" {
		t.Errorf("Fingerprint: %q, %v; asked for %s", got, err, shards.asked)
	}
	for _, other := range []string{"plain", "unknown"} {
		if adopted, err := b.Adopt(t.Context(), other, "orders", "three"); adopted || err != nil {
			t.Errorf("Adopt of %s: %t, %v", other, adopted, err)
		}
		if got, err := b.Fingerprint(t.Context(), other, "orders"); got != "" || err != nil {
			t.Errorf("Fingerprint of %s: %q, %v", other, got, err)
		}
	}
	shards.err = errors.New("away")
	if _, err := b.Adopt(t.Context(), "shards", "orders", "three"); !errors.Is(err, shards.err) {
		t.Errorf("Adopt while the broker is away: %v", err)
	}
}

// A topic of the second broker is sent once and marked, and not sent again however long one looks.
func TestField_058_TheSecondBrokerIsMarkedToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		first, second := membroker.New(membroker.Config{}), membroker.New(membroker.Config{})
		b, err := mux.New(mux.Config{
			Brokers: map[string]core.Broker{"first": first, "second": second},
			Routes:  []mux.Route{{Match: "jobs", Broker: "second"}, {Match: "*", Broker: "first"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		tx := store.Begin()
		if _, err := tx.Enqueue(t.Context(), core.Message{
			EventID: "1", Topic: "jobs", AggregateType: "job", AggregateID: "1", EventType: "created",
		}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		d, err := core.NewDispatcher(store, b, core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		wait(time.Minute)
		if n, other := len(second.Messages("jobs")), len(first.Messages("jobs")); n != 1 || other != 0 {
			t.Errorf("sent %d times, and %d times to the other broker", n, other)
		}
		if row, _ := store.Row("1"); row.State != memstore.Published {
			t.Errorf("the row is %s", row.State)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func Example() {
	events, jobs := membroker.New(membroker.Config{}), membroker.New(membroker.Config{})
	b, err := mux.New(mux.Config{
		Brokers: map[string]core.Broker{"events": events, "jobs": jobs},
		Routes:  []mux.Route{{Match: "jobs.*", Broker: "jobs"}, {Match: "*", Broker: "events"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, topic := range []string{"orders", "jobs.mail"} {
		p, err := b.Prepare(&core.Record{Message: core.Message{
			EventID: "1", Topic: topic, AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		}})
		fmt.Println(topic, "goes to", p.Broker, err)
	}
	// Output:
	// orders goes to events <nil>
	// jobs.mail goes to jobs <nil>
}
