package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

func TestPortsAreFreeAndDifferent(t *testing.T) {
	t.Parallel()
	var free Ports
	first, err := free.take(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address(first[2]+1))
	if err == nil { // or somebody else has it
		defer taken.Close() //nolint:errcheck // nobody connects
	}
	second, err := free.take(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{first[2] + 1: true}
	for _, port := range append(first, second...) {
		if seen[port] || port < firstPort || port >= lastPort {
			t.Errorf("port %d of %v and %v is taken, given twice or out of range", port, first, second)
		}
		seen[port] = true
	}
	if got, err := free.take(t.Context(), lastPort-firstPort); err == nil {
		t.Errorf("got %d ports of fewer", len(got))
	}
}

// Kafka tells each client the address of that client's link, and readers one past all links.
func TestKafkaAdvertisesLinks(t *testing.T) {
	t.Parallel()
	k := &kafka{dir: "/data", direct: 1, controller: 2, links: []int{11, 12}, upstreams: []int{21, 22}}
	got := k.properties()
	for _, want := range []string{
		"\nlisteners=DIRECT://127.0.0.1:1,CONTROLLER://127.0.0.1:2,LINK0://127.0.0.1:21,LINK1://127.0.0.1:22\n",
		"\nadvertised.listeners=DIRECT://127.0.0.1:1,LINK0://127.0.0.1:11,LINK1://127.0.0.1:12\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if listen, upstream := k.Links(1); listen != address(12) || upstream != address(22) {
		t.Errorf("link 1 leads from %s to %s", listen, upstream)
	}
}

func TestUntilGivesUpWhenTheServerHasEnded(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	close(ended)
	refused := errors.New("refused")
	err := until(t.Context(), "kafka", ended, func(context.Context) error { return refused })
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "kafka") {
		t.Errorf("got %v", err)
	}
	tries := 0
	if err := until(t.Context(), "kafka", nil, func(context.Context) error {
		if tries++; tries < 3 {
			return refused
		}
		return nil
	}); err != nil || tries != 3 {
		t.Errorf("got %v after %d tries", err, tries)
	}
}

func TestUnknownBroker(t *testing.T) {
	t.Parallel()
	if _, err := New(t.Context(), "nats", t.TempDir(), 3, &Ports{}); err == nil || !strings.Contains(err.Error(), "rabbitmq") {
		t.Errorf("got %v; want the names of those that there are", err)
	}
}
