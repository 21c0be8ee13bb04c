package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

const (
	// maxRewindReads bounds how often one Fetch starts again because of rewinds; what is left is for the next one.
	maxRewindReads = 3
	// largeRowsLast is for how many fetches rows are taken for large after one was.
	largeRowsLast = 64
)

// Fetch is described at [core.Store]. One round trip, and two more when rows were made unpublished again, or one more for
// the first large row. It holds no lock and, except for the first of each pause in the traffic, obtains no xid.
func (s *Store) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	s.waker.fetching()
	for rewinds := 0; ; {
		f := s.begin(req)
		p, err := s.read(ctx, req, f)
		if err != nil {
			s.fail(f)
			return core.Batch{}, fmt.Errorf("postgres: fetch: %w", err)
		}
		if p.tooLarge {
			s.cancel(f)
			s.largeRows.Store(largeRowsLast)
			continue
		}
		if len(p.rewinds) == 0 || rewinds == maxRewindReads {
			return s.end(req, f, p), nil
		}
		s.cancel(f)
		rewinds++
		if err := s.takeRewinds(ctx, req, p.rewinds); err != nil {
			return core.Batch{}, fmt.Errorf("postgres: fetch: rewinds: %w", err)
		}
	}
}

// page is what a fetch read.
type page struct {
	reply   cursor.Reply
	server  int64   // the server's name, as the database computes it
	held    []int16 // the lanes whose lease is the caller's
	xid     int64   // 0 unless a sample was taken
	rewinds []int64 // seq of the rewinds there are
	rows    int
	upTo    int64 // how far the rows go
	// tooLarge says that rows were taken for small, and one of them was not: the reading counts for nothing.
	tooLarge bool
	records  []*core.Record
	heads    []*core.Record
	places   []int // by lane: where it stands in the request, counted from 1; 0 for one that was not asked for
}

// placesOf finds out where each lane stands in the request.
func placesOf(req core.FetchRequest) []int {
	highest := 0
	for i := range req.Lanes {
		highest = max(highest, req.Lanes[i].Lane)
	}
	places := make([]int, highest+1)
	for i := range req.Lanes {
		places[req.Lanes[i].Lane] = i + 1
	}
	return places
}

// place is where a record's lane stands in the request. Rows of other lanes are never read.
func (p *page) place(r *core.Record) int { return p.places[r.Lane] - 1 }

func (s *Store) begin(req core.FetchRequest) *cursor.Fetch {
	wants := make([]cursor.Want, len(req.Lanes))
	for i := range req.Lanes {
		q := &req.Lanes[i]
		wants[i] = cursor.Want{Lane: q.Lane, Epoch: q.Epoch, RewindFrom: q.RewindFrom}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor.Begin(time.Now(), wants)
}

func (s *Store) fail(f *cursor.Fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor.Fail(f)
}

func (s *Store) cancel(f *cursor.Fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor.Cancel(f)
}

// read asks the database for what the cursor wants to know.
func (s *Store) read(ctx context.Context, req core.FetchRequest, f *cursor.Fetch) (*page, error) {
	p := &page{places: placesOf(req)}
	lanes, epochs := fetchLeases(req)
	steps := []step{{
		sql: s.queries.observe, args: []any{req.Member, lanes, epochs},
		read: one(nil, nil, nil, nil, nil, &p.server, &p.reply.Last, &p.reply.Snapshot.Xmin, &p.reply.Snapshot.Xmax, &p.reply.Snapshot.Open,
			&p.held, &p.rewinds),
	}}
	if f.Sample {
		steps = append(steps, step{sql: s.queries.xid, read: one(&p.xid)})
	}
	steps = append(steps, s.rowsStep(req, f, p))
	if heads := s.headsStep(req, p); heads != nil {
		steps = append(steps, *heads)
	}
	if err := s.transact(ctx, steps...); err != nil {
		return nil, err
	}
	p.conclude(req, f)
	return p, nil
}

func fetchLeases(req core.FetchRequest) ([]int16, []int64) {
	leases := make([]core.Lease, len(req.Lanes))
	for i := range req.Lanes {
		leases[i] = req.Lanes[i].Lease
	}
	return leaseArrays(leases)
}

// rowsStep reads the rows: as small ones, of which no number that may be asked for exceeds the bytes, until it turns out
// that some are not.
func (s *Store) rowsStep(req core.FetchRequest, f *cursor.Fetch, p *page) step {
	args := s.rowsArgs(req, f, len(p.places))
	share := req.MaxBytes / max(req.MaxRecords, 1)
	if left := s.largeRows.Load(); left > 0 || share == 0 {
		s.largeRows.CompareAndSwap(left, max(left-1, 0)) // another fetch may have counted
		return step{sql: s.queries.rows, args: append(args, req.MaxBytes), read: p.readRows(req)}
	}
	return step{sql: s.queries.smallRows, args: append(args, share), read: p.readSmallRows(req, int64(share))}
}

// rowsArgs are the arguments of candidatesSQL. Lanes that have nothing to read below the front are left out there.
func (s *Store) rowsArgs(req core.FetchRequest, f *cursor.Fetch, lanesAsked int) []any {
	lanes, marks, gates := []int16{}, []int64{}, []int64{}
	held := []int64{}
	topics, types, ids := []string{}, []string{}, []string{}
	asked := make([]bool, lanesAsked) // by lane
	for i, b := range f.Lanes {
		if b.Mark < f.Front {
			lanes, marks, gates = append(lanes, int16(b.Lane)), append(marks, b.Mark), append(gates, b.Gate) //nolint:gosec // few
		}
		q := &req.Lanes[i]
		from, _ := slices.BinarySearch(q.Held, b.Mark+1)
		held = append(held, q.Held[from:]...)
		from, _ = slices.BinarySearch(b.Returned, b.Gate+1)
		held = append(held, b.Returned[from:]...)
		for _, c := range q.Closed {
			if c.Head <= b.Position {
				topics, types, ids = append(topics, c.Topic), append(types, c.AggregateType), append(ids, c.AggregateID)
			}
		}
		asked[b.Lane] = true
	}
	few := f.Few
	if few == nil {
		few = []int64{}
	}
	return []any{lanes, marks, gates, f.Front, few, held, topics, types, ids, asked, req.MaxRecords}
}

func (s *Store) headsStep(req core.FetchRequest, p *page) *step {
	var ids []int64
	var events []string
	var lanes []int16
	for i := range req.Lanes {
		for _, head := range req.Lanes[i].Heads {
			ids, events = append(ids, head.ID), append(events, head.EventID)
		}
		lanes = append(lanes, int16(req.Lanes[i].Lane)) //nolint:gosec // few
	}
	if len(ids) == 0 {
		return nil
	}
	return &step{sql: s.queries.heads, args: []any{ids, events, lanes}, read: func(rows pgx.Rows) error {
		var reader recordReader
		for rows.Next() {
			r, _, err := reader.read(rows)
			if err != nil {
				return err
			}
			p.heads = append(p.heads, r)
		}
		return nil
	}}
}

// readRows reads the rows and finds out where a limit cut them.
func (p *page) readRows(req core.FetchRequest) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		p.upTo = cursor.Above
		var reader recordReader
		for rows.Next() {
			r, used, err := reader.read(rows)
			if err != nil {
				return err
			}
			switch p.rows++; {
			case p.rows > 1 && used > int64(req.MaxBytes): // it comes without its payload
				p.upTo = r.ID - 1
				continue
			case p.rows == req.MaxRecords || used >= int64(req.MaxBytes):
				p.upTo = r.ID
			}
			p.records = append(p.records, r)
		}
		return nil
	}
}

// readSmallRows reads the rows, unless one of them is larger than its share.
func (p *page) readSmallRows(req core.FetchRequest, share int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		p.upTo = cursor.Above
		var reader recordReader
		for rows.Next() {
			r, size, err := reader.read(rows)
			if err != nil {
				return err
			}
			p.tooLarge = size > share
			if p.tooLarge { // what follows is read again
				return nil
			}
			if p.rows++; p.rows == req.MaxRecords {
				p.upTo = r.ID
			}
			p.records = append(p.records, r)
		}
		return nil
	}
}

// conclude tells the cursor what was read, and drops what was returned before: the query leaves that out only above the
// gate, where it is little.
func (p *page) conclude(req core.FetchRequest, f *cursor.Fetch) {
	p.reply.Origin = uint64(p.server) //nolint:gosec // a hash
	p.reply.UpTo = p.upTo
	p.reply.Refused = make([]bool, len(req.Lanes))
	p.reply.IDs = make([][]int64, len(req.Lanes))
	for i := range req.Lanes {
		p.reply.Refused[i] = !slices.Contains(p.held, int16(req.Lanes[i].Lane)) //nolint:gosec // few
	}
	p.records = slices.DeleteFunc(p.records, func(r *core.Record) bool {
		i := p.place(r)
		if _, before := slices.BinarySearch(f.Lanes[i].Returned, r.ID); before {
			return true
		}
		p.reply.IDs[i] = append(p.reply.IDs[i], r.ID)
		return false
	})
}

// end installs what was read and makes the reply of it.
func (s *Store) end(req core.FetchRequest, f *cursor.Fetch, p *page) core.Batch {
	s.mu.Lock()
	outcomes := s.cursor.End(f, p.reply)
	if p.xid != 0 {
		s.cursor.Sample(time.Now(), p.reply.Origin, p.reply.Last, p.xid)
	}
	s.mu.Unlock()
	if f.Replaced != "" {
		s.cfg.Logger.Warn("the database is another one than before, or in an earlier state: reading anew",
			"table", s.cfg.Table, "evidence", f.Replaced)
	}
	batch := core.Batch{Lanes: make([]core.LaneBatch, len(req.Lanes))}
	for i := range req.Lanes {
		b, o := &batch.Lanes[i], outcomes[i]
		switch {
		case p.reply.Refused[i]:
			b.Refused = true
		case o.Reset:
			b.Reset = true
		default:
			b.After, b.UpTo, b.Rewound = f.Lanes[i].Position, p.reply.UpTo, o.Rewound
			if o.Forgot {
				b.Rewound = append(b.Rewound, req.Lanes[i].Held...)
			}
		}
	}
	for _, r := range p.records {
		if b := &batch.Lanes[p.place(r)]; !b.Refused && !b.Reset {
			r.Origin = p.reply.Origin
			b.Records = append(b.Records, r)
		}
	}
	for _, r := range p.heads {
		if b := &batch.Lanes[p.place(r)]; !b.Refused && !b.Reset {
			r.Origin = p.reply.Origin
			b.Heads = append(b.Heads, r)
		}
	}
	return batch
}

// takeRewinds deletes rewinds that were read and moves the cursor back. Under the lock of the lanes: who has lost a
// lane must not take its rewinds away from the next owner.
func (s *Store) takeRewinds(ctx context.Context, req core.FetchRequest, seqs []int64) error {
	lanes, epochs := fetchLeases(req)
	ids := map[int][]int64{}
	err := s.transact(ctx,
		step{sql: s.queries.fence, args: []any{req.Member, lanes, epochs}},
		step{sql: s.queries.forgetRewinds, args: []any{req.Member, lanes, epochs, seqs}, read: func(rows pgx.Rows) error {
			var lane int
			var id int64
			_, err := pgx.ForEachRow(rows, []any{&lane, &id}, func() error {
				ids[lane] = append(ids[lane], id)
				return nil
			})
			return err
		}},
	)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range req.Lanes {
		lane, epoch := req.Lanes[i].Lane, req.Lanes[i].Epoch
		if err != nil { // they may be deleted all the same
			s.cursor.Forgot(lane, epoch)
			continue
		}
		s.cursor.Rewind(lane, epoch, ids[lane]...)
	}
	return err
}
