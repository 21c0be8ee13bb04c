package brokertest_test

import (
	"fmt"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

func ExampleNewRecord() {
	r := brokertest.NewRecord("orders", "ord_1", 7)
	r.Payload = []byte(`{"total":42}`)
	fmt.Println(r.Key(), r.EventType, string(r.Payload))
	for name, value := range r.WireHeaders() {
		if name != core.HeaderEventID { // new each time
			fmt.Println(name, "=", value)
		}
	}
	// Output:
	// orders order/ord_1 order.changed {"total":42}
	// outbox_id = 7
	// event_type = order.changed
	// aggregate_type = order
	// aggregate_id = ord_1
	// schema_version = 1
	// tenant = acme
}

func ExampleCases() {
	for _, c := range brokertest.Cases()[:3] {
		fmt.Println(c.Name)
	}
	// Output:
	// Capabilities/AreConstant
	// Capabilities/FullBatchIsDelivered
	// Capabilities/BatchOfMaxBatchBytesIsDelivered
}
