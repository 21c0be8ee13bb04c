package memstore

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

// State is where a row stands.
type State string

const (
	// Pending: not settled yet; it may have failed before.
	Pending State = "pending"
	// Published: the broker has it.
	Published State = "published"
	// Parked: in the dead-letter state.
	Parked State = "parked"
	// Blocked: not settled, and not tried again before a person acts.
	Blocked State = "blocked"
	// Discarded: parked, and a person decided that it is not sent.
	Discarded State = "discarded"

	deleted State = "deleted" // no longer in the table
)

// Row is a copy of a row as a person would read it by SQL.
type Row struct {
	core.Record
	// State says whether the row is settled.
	State State
	// Reason is the error text of the last failure.
	Reason string
}

// Rows returns all committed rows by id.
func (s *Store) Rows() []Row {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([]Row, 0, len(t.byID))
	for _, r := range t.byID {
		rows = append(rows, t.read(r))
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}

// Row returns the committed row of an event, and whether there is one.
func (s *Store) Row(eventID string) (Row, bool) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byEvent[eventID]
	if r == nil {
		return Row{}, false
	}
	return t.read(r), true
}

func (t *table) read(r *row) Row {
	row := Row{Record: *r.record(t.origin, time.Now()), State: r.state, Reason: r.reason}
	if r.blocked {
		row.State = Blocked
	}
	return row
}

// Requeue makes events unsettled again, as a person does to a parked event (requeue), a published one (replay) or one
// that waits for its next attempt: attempts and waiting start anew, Replay grows by one, and the owner of the lane is
// told ([core.LaneBatch].Rewound). All or none: the error names the first id that has no row.
func (s *Store) Requeue(eventIDs ...string) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	rows, err := t.find(eventIDs)
	if err != nil {
		return err
	}
	for _, r := range rows {
		t.requeue(r)
	}
	t.announce()
	return nil
}

// requeue makes a row unsettled again, as new, and lets the owner of its lane know.
func (t *table) requeue(r *row) {
	if r.state != Pending {
		r.state = Pending
		t.lanes[r.lane].add(r)
	}
	r.replay++
	t.retry(r)
}

// retry lets an unsettled row be tried again at once, with no attempts charged.
func (t *table) retry(r *row) {
	r.attempts, r.reason, r.blocked = 0, "", false
	r.firstFailed, r.due, r.since = time.Time{}, time.Time{}, time.Time{}
	t.rewind(r)
}

// rewind tells the owner of the lane to look at the row again.
func (t *table) rewind(r *row) {
	lane := &t.lanes[r.lane]
	lane.rewinds = append(lane.rewinds, r.id)
}

// Purge deletes the rows that were published or discarded at least olderThan ago and returns how many.
func (s *Store) Purge(olderThan time.Duration) int {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	end, purged := time.Now().Add(-olderThan), 0
	for _, r := range t.byID {
		if (r.state == Published || r.state == Discarded) && !r.since.After(end) {
			t.forget(r)
			purged++
		}
	}
	return purged
}

// Delete removes the rows of events in whatever state. All or none: the error names the first id that has no row.
func (s *Store) Delete(eventIDs ...string) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	rows, err := t.find(eventIDs)
	if err != nil {
		return err
	}
	for _, r := range rows {
		t.forget(r)
	}
	return nil
}

func (t *table) find(eventIDs []string) ([]*row, error) {
	rows := make([]*row, 0, len(eventIDs))
	for _, id := range eventIDs {
		r := t.byEvent[id]
		if r == nil {
			return nil, fmt.Errorf("memstore: no row has the event id %q", id)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Expire ends a member's membership and leases now, as if it had been silent for its TTL.
func (s *Store) Expire(member string) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if _, known := t.members[member]; known {
		t.members[member] = now
	}
	for i := range t.lanes {
		if lane := &t.lanes[i]; lane.owner == member {
			lane.expires = now
		}
	}
}

// Restart is a crash of the database server: open transactions are gone, and every dispatcher is told that what it
// holds is void ([core.LaneBatch].Reset). The committed events named in lost are gone too, as after a failover to a
// server that had not got them yet, and their ids are drawn again. All or none: the error names the first id that has
// no row.
func (s *Store) Restart(lost ...string) error {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	rows, err := t.find(lost)
	if err != nil {
		return err
	}
	for _, r := range rows {
		t.forget(r)
	}
	t.origin++
	t.lastID = 0
	for id := range t.byID {
		t.lastID = max(t.lastID, id)
	}
	t.announce()
	return nil
}
