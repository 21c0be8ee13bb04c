package link_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The proxy may leave a goroutine behind when a slow connection is cut.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
