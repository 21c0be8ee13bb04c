package postgres

import (
	"context"
	"fmt"
)

// Requeue makes events unpublished again, with no attempts and a replay count one higher, whether they were parked,
// discarded, published, archived, or are waiting. It returns how many rows it changed; unknown ids change nothing. An event is
// sent again at the place of its id, behind nothing of its key that was published after it.
func (s *Store) Requeue(ctx context.Context, eventIDs ...string) (int, error) {
	var changed, back int
	steps := []step{{sql: s.queries.requeue, args: []any{eventIDs}, read: one(&changed)}}
	if s.cfg.AfterPublish == Archive && s.cfg.Partitioned { // where it comes back to may have been dropped
		steps = append(steps, step{sql: s.queries.monthOfArchived, args: []any{eventIDs}})
	}
	if s.cfg.AfterPublish == Archive { // second, so that what comes back is not requeued once more
		steps = append(steps, step{sql: s.queries.requeueArchived, args: []any{eventIDs}, read: one(&back)})
	}
	if err := s.transact(ctx, steps...); err != nil {
		return 0, fmt.Errorf("postgres: requeue: %w", err)
	}
	s.Nudge()
	return changed + back, nil
}
