package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startKafka starts a Kafka in this process, with the topic "order".
func startKafka(t *testing.T, opts ...kfake.Opt) (cluster *kfake.Cluster, url string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "order")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, "kafka://" + strings.Join(cluster.ListenAddrs(), ",")
}

// freeAddress is an address where nobody listens.
func freeAddress(t *testing.T) (address string, port int) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("address %v", l.Addr())
	}
	return addr.String(), addr.Port
}

// consume reads the topic "order" with a plain Kafka client until n different events have come. It returns their
// numbers by aggregate, in the order in which they came first, and how many came again.
func consume(t *testing.T, url string, n int) (numbers map[string][]int, repeats int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.TrimPrefix(url, "kafka://")),
		kgo.ConsumeTopics("order"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	numbers = map[string][]int{}
	seen := map[int]bool{}
	for len(seen) < n {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d of %d events came: %v", len(seen), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			var body struct{ Number int }
			if err := json.Unmarshal(r.Value, &body); err != nil {
				t.Errorf("payload %q: %v", r.Value, err)
			}
			if seen[body.Number] {
				repeats++
				return
			}
			seen[body.Number] = true
			numbers[string(r.Key)] = append(numbers[string(r.Key)], body.Number)
		})
	}
	return numbers, repeats
}

// realPostgres is the database that scripts/services started: its URL, and the address in it.
func realPostgres(t *testing.T) (rawURL, address string) {
	t.Helper()
	rawURL = os.Getenv("OUTBOX_TEST_POSTGRES_URL")
	if rawURL == "" {
		if strings.Contains(os.Getenv("OUTBOX_REQUIRE"), "postgres") {
			t.Fatal("OUTBOX_TEST_POSTGRES_URL is not set, and OUTBOX_REQUIRE names postgres")
		}
		t.Skip(`OUTBOX_TEST_POSTGRES_URL is not set; eval "$(scripts/services up postgres)"`)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal("OUTBOX_TEST_POSTGRES_URL is not a URL")
	}
	return rawURL, u.Host
}

// forward leads connections to a port of this machine on to an address.
func forward(t *testing.T, port int, to string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	var pipes sync.WaitGroup
	pipes.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			onward, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			copyAndClose := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src) // until either side is closed
				_, _ = dst.Close(), src.Close()
			}
			pipes.Go(func() { copyAndClose(onward, from) })
			pipes.Go(func() { copyAndClose(from, onward) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		pipes.Wait()
	})
}
