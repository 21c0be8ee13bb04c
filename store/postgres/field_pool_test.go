package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/store/postgres"
)

// The application keeps all connections of the pool that it shares with a dispatcher, for longer than a lease. That costs
// the dispatcher its lanes, and no event; once there are connections again it takes its share.
func TestPool_ExhaustedCostsLanesAndNoEvents(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	starved := openConfig(t, f.config(func(c *postgres.Config) { c.DSN += "&pool_max_conns=3" }))
	f.join(starved, 2*time.Second)
	f.join(openSame(t, f.s), 2*time.Second)
	f.awaitShares()
	f.write()
	for range 2 {
		var busy []pgx.Tx
		for range 3 {
			busy = append(busy, begin(t, starved))
		}
		f.await("the other one has all lanes", func() bool { return f.owners() == 1 })
		for _, tx := range busy {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		f.awaitShares()
	}
	t.Logf("%d repeats of %d events", f.finish(), f.written.Load())
}
