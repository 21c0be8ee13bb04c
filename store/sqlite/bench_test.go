package sqlite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

// body is a payload of a usual size.
var body = []byte(fmt.Sprintf(`{"order": "ord_1", "note": %q}`, fmt.Sprintf("%0380d", 0)))

func BenchmarkEnqueue(b *testing.B) {
	for _, level := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		for _, perTx := range []int{1, 100} {
			b.Run(fmt.Sprintf("synchronous=%s/per-tx=%d", level, perTx), func(b *testing.B) {
				s := open(b, func(c *sqlite.Config) { c.Synchronous = level })
				b.ResetTimer()
				for done := 0; done < b.N; done += perTx {
					fill(b, s, perTx)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

// BenchmarkDrain fetches and settles as fast as it can, 500 records at a time.
func BenchmarkDrain(b *testing.B) {
	for _, after := range []sqlite.AfterPublish{sqlite.Mark, sqlite.Delete} {
		b.Run("after-publish="+string(after), func(b *testing.B) {
			s := open(b, func(c *sqlite.Config) { c.AfterPublish = after })
			for left := b.N; left > 0; left -= 1000 {
				fill(b, s, min(left, 1000))
			}
			m := join(b, s, "m1")
			req := m.request()
			req.MaxRecords, req.MaxBytes = 500, 4<<20
			b.ReportAllocs()
			b.ResetTimer()
			for drained := 0; drained < b.N; {
				records := m.do(req).Records
				m.settle(core.StatusPublished, records...)
				drained += len(records)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkFetchBehindHeld is a fetch that finds nothing new while thousands of records are held and keys closed.
func BenchmarkFetchBehindHeld(b *testing.B) {
	s := open(b)
	fill(b, s, 20_000)
	m := join(b, s, "m1")
	req := m.request()
	req.MaxRecords, req.MaxBytes = 20_000, 64<<20
	records := m.do(req).Records
	held := func(l *core.LaneFetch) {
		l.Held = ids(records)
		for _, r := range records[:5000] {
			l.Closed = append(l.Closed, core.ClosedKey{Key: r.Key(), Head: r.ID})
		}
	}
	for _, from := range []int64{0, 1} {
		b.Run(fmt.Sprintf("rewind-from=%d", from), func(b *testing.B) {
			for b.Loop() {
				if got := m.fetch(held, func(l *core.LaneFetch) { l.RewindFrom = from }); len(got.Records) != 0 {
					b.Fatalf("got %d records, all are held", len(got.Records))
				}
			}
		})
	}
}

func fill(b *testing.B, s *sqlite.Store, n int) {
	b.Helper()
	messages := make([]core.Message, n)
	for i := range messages {
		messages[i] = core.Message{
			AggregateType: "order", AggregateID: fmt.Sprint("ord_", i), EventType: "order.created",
			Payload: body, Headers: map[string]string{"tenant": "acme"},
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	if err := tryEnqueue(ctx, s, messages...); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLease is a renewal: what standing by costs others.
func BenchmarkLease(b *testing.B) {
	s := open(b, func(c *sqlite.Config) { c.Synchronous = sqlite.Normal })
	for b.Loop() {
		_, err := s.Lease(b.Context(), core.LeaseRequest{Member: "m1", TTL: time.Hour, Want: []int{0}})
		if err != nil {
			b.Fatal(err)
		}
	}
}
