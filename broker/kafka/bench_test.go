package kafka_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
)

// benchRecords returns records of 420 bytes of JSON over 100 keys.
func benchRecords(topic string, n int) []*core.Record {
	records := make([]*core.Record, n)
	for i := range records {
		r := brokertest.NewRecord(topic, fmt.Sprintf("order-%d", i%100), int64(i+1))
		r.Payload = fmt.Appendf(nil, `{"id":"%s","total":%d,"lines":[`, r.EventID, i*37)
		for n := 0; len(r.Payload) < 400; n++ {
			r.Payload = fmt.Appendf(r.Payload, `{"sku":"%d","n":%d},`, (i*7919+n*104729)%1000000, n)
		}
		r.Payload = append(r.Payload, `{"sku":"0","n":0}]}`...)
		records[i] = r
	}
	return records
}

func BenchmarkPrepare(b *testing.B) {
	broker := open(b, kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	r := benchRecords("orders", 1)[0]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := broker.Prepare(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPublishBatch publishes batches of 500 records of 420 bytes, one after the other and four at a time, against
// kfake (which keeps them in memory, in this process) and against a real Kafka where there is one.
func BenchmarkPublishBatch(b *testing.B) {
	b.Run("fake", func(b *testing.B) {
		fake, err := kfake.NewCluster(kfake.NumBrokers(3))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(fake.Close)
		c := &cluster{network: &network{}, fake: fake, direct: fake.ListenAddrs()}
		c.admin = kadm.NewClient(c.client(b))
		benchmarkCluster(b, c)
	})
	b.Run("real", func(b *testing.B) { benchmarkCluster(b, realCluster(b)) })
}

func benchmarkCluster(b *testing.B, c *cluster) {
	for _, compression := range []kafka.Compression{
		kafka.CompressionNone, kafka.CompressionSnappy, kafka.CompressionLZ4, kafka.CompressionZstd,
	} {
		for _, inFlight := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/inflight=%d", compression, inFlight), func(b *testing.B) {
				benchmarkPublish(b, c, compression, inFlight)
			})
		}
	}
}

func benchmarkPublish(b *testing.B, c *cluster, compression kafka.Compression, inFlight int) {
	const size = 500
	topic := c.topic(b, 6, nil)
	broker := open(b, kafka.Config{Brokers: c.direct, Compression: compression})
	records := benchRecords(topic, size)
	publish := func() error {
		batch := make([]core.Prepared, size)
		for i, r := range records {
			p, err := broker.Prepare(r)
			if err != nil {
				return err
			}
			batch[i] = p
		}
		for _, r := range broker.PublishBatch(b.Context(), batch) {
			if r.Outcome != core.OutcomeDelivered {
				return r.Err
			}
		}
		return nil
	}
	if err := publish(); err != nil { // connects
		b.Fatal(err)
	}
	b.ReportAllocs()
	var workers sync.WaitGroup
	turns := make(chan struct{})
	for range inFlight {
		workers.Go(func() {
			for range turns {
				if err := publish(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for b.Loop() {
		turns <- struct{}{}
	}
	close(turns)
	workers.Wait()
	b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "msg/s")
	b.SetBytes(size * int64(len(records[0].Payload)))
}
