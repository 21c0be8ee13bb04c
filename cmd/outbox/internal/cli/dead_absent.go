package cli

import (
	"context"
	"slices"

	"github.com/go-outbox/outbox/core"
)

// deadPage bounds how many events are read at once.
const deadPage = 500

// absent returns the ids of the filter, each once, that no event has which it selects.
func absent(ctx context.Context, store core.DeadLetters, filter core.DeadLetterFilter) ([]string, error) {
	ids := slices.Clone(filter.EventIDs)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for after := int64(0); len(ids) > 0; {
		dead, err := store.ListDead(ctx, filter, after, deadPage)
		if err != nil {
			return nil, err
		}
		for _, d := range dead {
			after = d.Record.ID
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == d.Record.EventID })
		}
		if len(dead) < deadPage {
			break
		}
	}
	return ids, nil
}

// tellAbsent says for each id that there is no such event, or in which other state it is.
func (p *program) tellAbsent(ctx context.Context, store core.DeadLetters, state core.DeadLetterState, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	for _, other := range []core.DeadLetterState{core.StateParked, core.StateBlocked, core.StateDiscarded} {
		rest, err := absent(ctx, store, core.DeadLetterFilter{State: other, EventIDs: ids})
		if err != nil {
			return err
		}
		for _, id := range ids {
			switch found := !slices.Contains(rest, id); {
			case found && other == state:
				p.notef("outbox: the event with id %q is %s, but the other flags do not select it\n", id, other)
			case found:
				p.notef("outbox: no %s event with id %q; it is %s: `outbox dead list --state %s`\n", state, id, other, other)
			}
		}
		ids = rest
	}
	for _, id := range ids {
		p.notef("outbox: no %s event with id %q; `outbox dead list --state %s` shows them\n", state, id, state)
	}
	return errCheck
}
