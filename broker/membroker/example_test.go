package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

func event(id string, n int64) *core.Record {
	return &core.Record{ID: n, Message: core.Message{
		EventID: id, Topic: "orders", AggregateType: "order", AggregateID: "ord_1", EventType: "order.changed",
		Payload: fmt.Appendf(nil, `{"version":%d}`, n),
	}}
}

func Example() {
	ctx := context.Background()
	broker := membroker.New(membroker.Config{})
	prepared, err := broker.Prepare(event("e1", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	result := broker.PublishBatch(ctx, []core.Prepared{prepared})[0]
	fmt.Println(result.Outcome)
	for _, m := range broker.Messages("orders") {
		fmt.Println(m.Token, m.EventID, string(m.Payload), m.Headers[core.HeaderEventType])
	}
	// Output:
	// delivered
	// ord_1 e1 {"version":1} order.changed
}

// A script fails in the ways in which real brokers do: here the answer of the first call is lost and the second call
// is throttled.
func ExampleScript() {
	ctx := context.Background()
	broker := membroker.New(membroker.Config{
		Script: membroker.Calls(
			membroker.LoseReply(),
			membroker.Throttle(time.Second),
		),
	})
	prepared, _ := broker.Prepare(event("e1", 1))
	for range 3 {
		result := broker.PublishBatch(ctx, []core.Prepared{prepared})[0]
		fmt.Println(result.Outcome, len(broker.Messages("orders")))
	}
	// Output:
	// unknown 1
	// rejected 1
	// delivered 2
}

// A script may be any function: here one event is poison, and everything takes a while.
func ExamplePlan() {
	poison := &core.PublishError{
		Class: core.ClassPermanent, Scope: core.ScopeMessage, Code: "INVALID", Err: errors.New("no such tenant"),
	}
	broker := membroker.New(membroker.Config{
		KeyGuarantee: core.PrefixPerKey,
		Script: func(c membroker.Call) membroker.Plan {
			fmt.Printf("call %d: %d messages to %s\n", c.N, len(c.Batch), c.Destination)
			return membroker.RejectEvents(poison, "e2").After(time.Millisecond)
		},
	})
	var batch []core.Prepared
	for n, id := range []string{"e1", "e2", "e3"} {
		prepared, _ := broker.Prepare(event(id, int64(n+1)))
		batch = append(batch, prepared)
	}
	for _, result := range broker.PublishBatch(context.Background(), batch) {
		fmt.Println(result.Outcome, result.Err)
	}
	// Output:
	// call 1: 3 messages to orders
	// delivered <nil>
	// rejected INVALID: no such tenant
	// skipped SKIPPED: membroker: an earlier message of the key was not delivered
}

// Faults are switched on and off while a test runs.
func ExampleFaults() {
	var faults membroker.Faults
	broker := membroker.New(membroker.Config{Script: faults.Script})
	prepared, _ := broker.Prepare(event("e1", 1))
	publish := func() {
		result := broker.PublishBatch(context.Background(), []core.Prepared{prepared})[0]
		fmt.Println(result.Outcome)
	}
	faults.Refuse(1)
	publish()
	publish()
	// Output:
	// rejected
	// delivered
}

// Brokers that share a server are like clients of one cluster, which can be stopped and started.
func ExampleServer() {
	server := membroker.NewServer("orders")
	broker := membroker.New(membroker.Config{Server: server})
	server.Stop()
	fmt.Println(broker.Check(context.Background()))
	server.Start()
	fmt.Println(broker.Check(context.Background()))
	fmt.Println(broker.Verify(context.Background(), "orders", "payments"))
	// Output:
	// membroker: check: the server is stopped
	// <nil>
	// membroker: destination "payments" does not exist
}
