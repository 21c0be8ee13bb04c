package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The short form of a run, with RabbitMQ: it is up again the soonest after a restart, its quorum queues keep what they
// have confirmed when it is killed (ElasticMQ does not), and repeats are seen (a FIFO queue hides them).
func TestChaosOnRabbitMQ(t *testing.T) {
	t.Parallel()
	for service, variable := range map[string]string{
		"postgres": "OUTBOX_TEST_POSTGRES_URL", "rabbitmq": "OUTBOX_TEST_RABBITMQ_URL",
	} {
		if os.Getenv(variable) != "" {
			continue // it is installed; this test starts one of its own
		}
		if slices.Contains(strings.Split(os.Getenv("OUTBOX_REQUIRE"), ","), service) {
			t.Fatalf("OUTBOX_REQUIRE names %s, but %s is not set", service, variable)
		}
		t.Skipf(`%s is not set; eval "$(scripts/services up %s)"`, variable, service)
	}
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	var out bytes.Buffer
	kept, err := runAll(t.Context(), []string{"rabbitmq"}, options{duration: 15 * time.Second, seed: 1}, false, &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatal(err)
	}
	if !kept {
		t.Error("a promise was broken")
	}
}
