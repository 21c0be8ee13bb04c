package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-outbox/outbox/core"
)

// onlyLane is the lane of all rows.
const onlyLane = 0

// errRefused leaves a transaction because the lease is no longer the caller's.
var errRefused = errors.New("the lease is no longer held")

// Fetch is described at [core.Store]. Rows that cannot be read are parked on the way, in a transaction of its own that
// is over before Fetch returns; for them and for rewinds it waits for the writing connection, otherwise for nobody.
func (s *Store) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	s.alarm.reset()
	s.watch.changed(ctx) // what was committed so far, this fetch will see
	batch := core.Batch{Lanes: make([]core.LaneBatch, len(req.Lanes))}
	for i, lane := range req.Lanes {
		got, err := s.fetchLane(ctx, req, lane)
		switch {
		case errors.Is(err, errRefused):
			got = core.LaneBatch{Refused: true}
		case err != nil:
			return core.Batch{}, fmt.Errorf("sqlite: fetch: %w", err)
		}
		batch.Lanes[i] = got
	}
	return batch, nil
}

func (s *Store) fetchLane(ctx context.Context, req core.FetchRequest, lane core.LaneFetch) (core.LaneBatch, error) {
	p := page{store: s, req: req, lane: lane, after: s.cursor.start(lane)}
	if err := s.read(ctx, func(tx *sql.Tx) error { return p.read(ctx, tx) }); err != nil {
		return core.LaneBatch{}, err
	}
	if p.lastRewind > 0 || len(p.unreadable) > 0 {
		if err := s.write(ctx, func(tx *sql.Tx) error { return p.tidy(ctx, tx) }); err != nil {
			return core.LaneBatch{}, err
		}
	}
	// An id above the newest of the snapshot is drawn after it: there is one writer. So the position may pass the rows
	// that were left out, and the next fetch need not look at them again.
	upTo, position := int64(core.EverythingAbove), max(p.after, p.newest)
	if p.cutAt > 0 {
		upTo, position = p.cutAt, p.cutAt
	}
	return core.LaneBatch{
		After: p.after, UpTo: upTo, Records: p.records, Heads: p.heads, Parked: p.parked(),
		Rewound: s.cursor.finish(lane.Epoch, position),
	}, nil
}

// page is one fetch of the lane in the making.
type page struct {
	store *Store
	req   core.FetchRequest
	lane  core.LaneFetch

	after      int64 // the bound that is read from
	newest     int64 // highest id of the snapshot
	lastRewind int64 // highest seq of the rewinds that were read, 0 for none
	records    []*core.Record
	heads      []*core.Record
	unreadable []unreadable
	cutAt      int64 // last id looked at when a limit ended the reading, else 0
}

// read fills the page from one snapshot.
func (p *page) read(ctx context.Context, tx *sql.Tx) error {
	if err := p.readState(ctx, tx); err != nil {
		return err
	}
	if err := p.readRecords(ctx, tx); err != nil {
		return err
	}
	if len(p.lane.Heads) == 0 {
		return nil
	}
	return p.readHeads(ctx, tx)
}

func (p *page) readState(ctx context.Context, tx *sql.Tx) error {
	var owned int
	var rewinds []byte
	row := tx.QueryRowContext(ctx, p.store.queries.state, p.lane.Lane, p.req.Member, p.lane.Epoch)
	if err := row.Scan(&owned, &p.newest, &p.lastRewind, &rewinds); err != nil {
		return err
	}
	if owned == 0 {
		return errRefused
	}
	if p.lastRewind == 0 {
		return nil
	}
	var ids []int64
	if err := json.Unmarshal(rewinds, &ids); err != nil {
		return fmt.Errorf("rewinds: %w", err)
	}
	p.store.cursor.report(p.lane.Epoch, ids)
	return nil
}

// readRecords streams rows, so that a fetch holds no more than its limits and one row.
func (p *page) readRecords(ctx context.Context, tx *sql.Tx) (err error) {
	rows, err := tx.QueryContext(ctx, p.store.queries.records,
		p.after, p.heldAbove(), p.closedBelow(), p.req.MaxRecords+1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var last int64
	count, bytes := 0, 0
	for rows.Next() {
		r, fault, err := scanRecord(rows)
		if err != nil {
			return err
		}
		bytes += r.Size()
		if count == p.req.MaxRecords || (count > 0 && bytes > p.req.MaxBytes) {
			p.cutAt = last
			return nil
		}
		count++
		last = r.ID
		if fault != "" {
			p.unreadable = append(p.unreadable, unreadable{record: r, fault: fault})
			continue
		}
		p.records = append(p.records, r)
	}
	return rows.Err()
}

// heldAbove encodes the held ids that the reading could meet.
func (p *page) heldAbove() string {
	from, _ := slices.BinarySearch(p.lane.Held, p.after+1)
	return jsonArray(p.lane.Held[from:])
}

// closedBelow encodes the closed keys whose head will not be returned.
func (p *page) closedBelow() string {
	var keys [][3]string
	for _, c := range p.lane.Closed {
		if c.Head <= p.after {
			keys = append(keys, [3]string{c.Topic, c.AggregateType, c.AggregateID})
		}
	}
	return jsonArray(keys)
}

func (p *page) readHeads(ctx context.Context, tx *sql.Tx) (err error) {
	refs := make([][2]any, len(p.lane.Heads))
	for i, head := range p.lane.Heads {
		refs[i] = [2]any{head.ID, head.EventID}
	}
	rows, err := tx.QueryContext(ctx, p.store.queries.heads, jsonArray(refs))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, fault, err := scanRecord(rows)
		if err != nil {
			return err
		}
		if fault != "" {
			p.unreadable = append(p.unreadable, unreadable{record: r, fault: fault})
			continue
		}
		p.heads = append(p.heads, r)
	}
	return rows.Err()
}

// tidy deletes the rewinds that were read and parks what cannot be read, under the lease.
func (p *page) tidy(ctx context.Context, tx *sql.Tx) error {
	var owned int
	row := tx.QueryRowContext(ctx, p.store.queries.fence, p.lane.Lane, p.req.Member, p.lane.Epoch)
	if err := row.Scan(&owned); err != nil {
		return err
	}
	if owned == 0 {
		return errRefused
	}
	items := make([][2]any, len(p.unreadable))
	for i, u := range p.unreadable {
		items[i] = [2]any{u.record.ID, u.fault}
	}
	return execAll(ctx, tx,
		statement{p.store.queries.dropRewinds, []any{p.lastRewind}},
		statement{p.store.queries.unreadable, []any{jsonArray(items)}},
	)
}

// parked are the rows that tidy has parked.
func (p *page) parked() []core.DeadLetter {
	var parked []core.DeadLetter
	for _, u := range p.unreadable {
		u.record.Attempts++
		parked = append(parked, core.DeadLetter{Record: u.record, State: core.StateParked, Reason: u.fault})
	}
	return parked
}
