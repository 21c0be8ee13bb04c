package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-outbox/outbox/core"
)

// Settle is described at [core.Store]. One round trip, with the commit in it, however many items there are.
func (s *Store) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	lanes, epochs := leaseArrays(req.Leases)
	var server, last int64
	fence := locked{}
	settled := map[int64]int{}
	published, failed := newItems(), newItems()
	for i := range req.Items {
		if req.Items[i].Status == core.StatusPublished {
			published.add(&req.Items[i])
		} else {
			failed.addFailed(&req.Items[i])
		}
	}
	fenceArgs := []any{req.Member, lanes, epochs}
	steps := []step{
		{sql: s.queries.prepareSettle, args: []any{s.settleTimeout()}, read: one(nil, nil, nil, nil, nil, nil, &server, &last)},
		{sql: s.queries.fence, args: fenceArgs, read: fence.read},
	}
	if len(published.ids) > 0 {
		steps = append(steps, step{
			sql: s.queries.published, args: append(slices.Clone(fenceArgs), published.args()...), read: countIDs(settled),
		})
	}
	if len(failed.ids) > 0 {
		steps = append(steps, step{
			sql: s.queries.failed, args: append(slices.Clone(fenceArgs), failed.failedArgs()...), read: countIDs(settled),
		})
	}
	if err := s.transact(ctx, steps...); err != nil {
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			s.disconnected()
		}
		return core.Settled{}, fmt.Errorf("postgres: settle: %w", err)
	}
	if fence.xid != 0 {
		s.mu.Lock()
		s.cursor.Sample(time.Now(), uint64(server), last, fence.xid) //nolint:gosec // a hash
		s.mu.Unlock()
	}
	return fence.result(req, settled), nil
}

func (s *Store) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor.Disconnected()
}

// settleTimeout is how long the server waits for the rest of a settle before it lets go of the lanes: a client that is
// stopped in the middle must not keep them from the next owner. In milliseconds, less than any lease lasts.
func (s *Store) settleTimeout() string {
	ms := time.Duration(s.leaseTTL.Load()).Milliseconds() / 2
	return strconv.FormatInt(min(max(ms, 50), 5000), 10)
}

// items are settle items as arrays.
type items struct {
	ids, origins []int64
	events       []string
	replays      []int32
	created      []time.Time

	attempts []int32
	reasons  []string
	parks    []bool
	retryIn  []int64 // microseconds, the most there are for never
}

func newItems() *items { return &items{} }

func (a *items) add(item *core.SettleItem) {
	r := item.Record
	a.ids = append(a.ids, r.ID)
	a.events = append(a.events, r.EventID)
	a.replays = append(a.replays, int32(r.Replay)) //nolint:gosec // as the column
	a.origins = append(a.origins, int64(r.Origin)) //nolint:gosec // a hash
	a.created = append(a.created, r.CreatedAt)
}

func (a *items) addFailed(item *core.SettleItem) {
	a.add(item)
	a.attempts = append(a.attempts, int32(item.Attempts)) //nolint:gosec // as the column
	a.reasons = append(a.reasons, item.Reason)
	a.parks = append(a.parks, item.Status == core.StatusParked)
	if item.Status == core.StatusBlocked {
		a.retryIn = append(a.retryIn, math.MaxInt64)
		return
	}
	a.retryIn = append(a.retryIn, item.RetryIn.Microseconds())
}

func (a *items) args() []any { return []any{a.ids, a.events, a.replays, a.origins, a.created} }

func (a *items) failedArgs() []any {
	return append(a.args(), a.attempts, a.reasons, a.parks, a.retryIn)
}
