package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheEventArrives(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	address := fake.ListenAddrs()[0]

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "shop.db")
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, file, address) }()

	consumer, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("order"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	records := consumer.PollFetches(t.Context()).Records()
	if len(records) != 1 || string(records[0].Value) != `{"total":4200}` {
		t.Errorf("got %d records: %+v", len(records), records)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
