package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// fill writes n rows of 1,000 aggregates with about 400 bytes each, past the library.
func fill(t testing.TB, s *postgres.Store, n int) {
	t.Helper()
	execSQL(t, s, `INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'ord_' || g % 1000, 'order.created', ('{"n": ' || g || ', "text": "' || repeat('x', 380) || '"}')::json
		FROM generate_series(1, $1::int) g`, n)
	execSQL(t, s, `VACUUM ANALYZE {outbox}`)
}

// BenchmarkFetch reads a backlog of 200,000 rows, 1,000 at a time, and settles nothing.
func BenchmarkFetch(b *testing.B) {
	const backlog = 200_000
	s := open(b)
	fill(b, s, backlog)
	b.ReportAllocs()
	b.ResetTimer()
	rows := 0
	for range b.N {
		b.StopTimer()
		m := join(b, s, fmt.Sprint("m", time.Now().UnixNano()))
		b.StartTimer()
		for {
			req := m.request()
			got := m.do(req)
			rows += len(got)
			if len(got) == 0 {
				break
			}
		}
		b.StopTimer()
		if _, err := s.Lease(b.Context(), core.LeaseRequest{Member: m.name, Leave: true}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkFetchIdle is a fetch of 64 lanes of which none has anything new.
func BenchmarkFetchIdle(b *testing.B) {
	s := open(b)
	fill(b, s, 1000)
	m := join(b, s, "m")
	m.drain()
	for range 20 {
		m.fetch()
	}
	b.ReportAllocs()
	for b.Loop() {
		m.fetch()
	}
}

// BenchmarkSettle settles batches of 1,000 rows that were read before.
func BenchmarkSettle(b *testing.B) {
	for _, after := range []postgres.AfterPublish{postgres.Mark, postgres.Delete, postgres.Archive} {
		b.Run(string(after), func(b *testing.B) {
			const batch = 1000
			s := open(b, func(c *postgres.Config) { c.AfterPublish = after })
			fill(b, s, batch*b.N)
			m := join(b, s, "m")
			var records []*core.Record
			for {
				got := m.do(m.request())
				if len(got) == 0 {
					break
				}
				records = append(records, got...)
			}
			b.ResetTimer()
			for chunk := range slices.Chunk(records, batch) {
				if got := m.settle(core.StatusPublished, chunk...); len(got.Missed) > 0 {
					b.Fatal("missed", len(got.Missed))
				}
			}
			b.ReportMetric(float64(len(records))/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkDrain fetches and settles a backlog with two settles under way, as a dispatcher does without a broker.
func BenchmarkDrain(b *testing.B) {
	for _, after := range []postgres.AfterPublish{postgres.Mark, postgres.Delete, postgres.Archive} {
		b.Run(string(after), func(b *testing.B) {
			const backlog = 100_000
			var took time.Duration
			for range b.N {
				b.StopTimer()
				s := open(b, func(c *postgres.Config) { c.AfterPublish = after })
				fill(b, s, backlog)
				m := join(b, s, "m")
				b.StartTimer()
				start := time.Now()
				drainPipelined(b, m, backlog)
				took += time.Since(start)
			}
			b.ReportMetric(float64(backlog*b.N)/took.Seconds(), "rows/s")
		})
	}
}

func drainPipelined(b *testing.B, m *member, backlog int) {
	b.Helper()
	type result struct {
		ids []int64
		err error
	}
	done := make(chan result, 8)
	held := map[int64]int{}
	running, settled := 0, 0
	for settled < backlog {
		req := m.request()
		byLane := map[int][]int64{}
		for id, lane := range held {
			byLane[lane] = append(byLane[lane], id)
		}
		for i := range req.Lanes {
			ids := byLane[req.Lanes[i].Lane]
			slices.Sort(ids)
			req.Lanes[i].Held = ids
		}
		records := m.do(req)
		if len(records) > 0 {
			ids := make([]int64, len(records))
			for i, r := range records {
				ids[i], held[r.ID] = r.ID, r.Lane
			}
			running++
			go func() {
				_, err := m.store.Settle(context.Background(), m.settlement(core.StatusPublished, records...))
				done <- result{ids, err}
			}()
		}
		for running > 2 || running > 0 && len(records) == 0 {
			r := <-done
			if r.err != nil {
				b.Fatal(r.err)
			}
			for _, id := range r.ids {
				delete(held, id)
			}
			running--
			settled += len(r.ids)
			if len(records) == 0 {
				break
			}
		}
	}
}

// BenchmarkEnqueue compares a transaction that enqueues with one that inserts the same row by hand.
func BenchmarkEnqueue(b *testing.B) {
	payload := []byte(`{"text": "` + string(slices.Repeat([]byte("x"), 380)) + `"}`)
	for name, write := range map[string]func(ctx context.Context, s *postgres.Store, tx pgx.Tx, n int) error{
		"bare": func(ctx context.Context, s *postgres.Store, tx pgx.Tx, n int) error {
			_, err := tx.Exec(ctx, s.SQL(`INSERT INTO {outbox} (event_id, aggregate_type, aggregate_id, event_type, payload)
				VALUES ($1, $2, $3, $4, $5)`), core.NewEventID(), "order", fmt.Sprint("ord_", n%1000), "order.created", payload)
			return err
		},
		"enqueue": func(ctx context.Context, s *postgres.Store, tx pgx.Tx, n int) error {
			_, err := s.In(tx).Enqueue(ctx, core.Message{
				AggregateType: "order", AggregateID: fmt.Sprint("ord_", n%1000), EventType: "order.created", Payload: payload,
			})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			b.SetParallelism(4)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for n := 0; p.Next(); n++ {
					if err := s.InTx(b.Context(), func(tx pgx.Tx, _ core.Enqueuer) error { return write(b.Context(), s, tx, n) }); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
