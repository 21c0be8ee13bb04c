package sqsfake_test

import (
	"fmt"

	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
)

// A script that refuses an event once, while it takes the others of the request.
func ExampleServer_SetScript() {
	fake, err := sqsfake.Start(sqsfake.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fake.Close()
	refused := false
	script := func(r sqsfake.Request) (fault sqsfake.Fault) {
		for i, e := range r.Entries {
			if e.DeduplicationID == "e-2" && !refused {
				refused = true
				fault.Entries = map[int]*sqsfake.Error{i: sqsfake.Throttled()}
			}
		}
		return fault
	}
	fake.SetScript(script)

	request := sqsfake.Request{Action: "SendMessageBatch", Entries: []sqsfake.Entry{
		{DeduplicationID: "e-1"}, {DeduplicationID: "e-2"},
	}}
	fmt.Println(script(request).Entries)
	fmt.Println(script(request).Entries)
	// Output:
	// map[1:RequestThrottled: The rate of requests exceeds the limit.]
	// map[]
}
