package main

import (
	"testing"

	"go.uber.org/goleak"
)

// The proxy's bandwidth limit leaves a goroutine behind when its connection is cut in the middle of a wait.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
