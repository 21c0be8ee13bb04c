package ordering

// Queue holds the records that are ready to be published, from all lanes of a dispatcher, by outlet. It is filled by
// gates and emptied by [Queue.Take]. Not safe for concurrent use.
type Queue[T any] struct {
	outlets map[Outlet]*line[T]
	// turn is the order in which outlets are served: the one at the front next, then it goes to the back.
	turn []*line[T]
	// records and bytes are what all gates hold.
	records, bytes int
}

// line is what is ready for one outlet, oldest first. Entries that were dropped meanwhile are passed over.
type line[T any] struct {
	outlet  Outlet
	entries []*Entry[T]
	start   int
	queued  bool // in Queue.turn
}

// Limit bounds what [Queue.Take] hands out at once.
type Limit struct {
	// Records is the largest number of records, at least 1.
	Records int
	// Bytes is the largest sum of their bytes; 0 means no limit. The first record is handed out whatever its size.
	Bytes int
	// Runs allows several records of one key in a row.
	Runs bool
}

// NewQueue returns an empty queue.
func NewQueue[T any]() *Queue[T] { return &Queue[T]{outlets: map[Outlet]*line[T]{}} }

// Held returns how many records its gates hold, and their bytes.
func (q *Queue[T]) Held() (records, bytes int) { return q.records, q.bytes }

func (q *Queue[T]) push(e *Entry[T]) {
	l := q.outlets[e.Outlet]
	if l == nil {
		l = &line[T]{outlet: e.Outlet}
		q.outlets[e.Outlet] = l
	}
	l.entries = append(l.entries, e)
	if !l.queued {
		l.queued = true
		q.turn = append(q.turn, l)
	}
}

// Next returns the outlet whose turn it is among those that have a record ready and that may is true for.
func (q *Queue[T]) Next(may func(Outlet) bool) (Outlet, bool) {
	for range len(q.turn) {
		l := q.turn[0]
		if l.skip(); l.start == len(l.entries) {
			q.turn = q.turn[1:]
			l.queued = false
			delete(q.outlets, l.outlet)
			continue
		}
		q.turn = append(q.turn[1:], l)
		if may(l.outlet) {
			return l.outlet, true
		}
	}
	return Outlet{}, false
}

// Take hands out ready records of the outlet to be published in one call, at most one of each key unless the limit
// allows runs. Every one of them has to be answered to its gate, in this order.
func (q *Queue[T]) Take(outlet Outlet, limit Limit) []*Entry[T] {
	l := q.outlets[outlet]
	if l == nil {
		return nil
	}
	batch := make([]*Entry[T], 0, min(limit.Records, len(l.entries)-l.start))
	bytes := 0
	fits := func(e *Entry[T]) bool {
		return len(batch) == 0 || !e.Alone && !batch[0].Alone &&
			len(batch) < limit.Records && (limit.Bytes == 0 || bytes+e.Bytes <= limit.Bytes)
	}
	for l.skip(); l.start < len(l.entries) && fits(l.entries[l.start]); l.skip() {
		e := l.entries[l.start]
		l.entries[l.start] = nil
		l.start++
		for {
			e.key.pop()
			e.key.busy++
			e.state = entryBusy
			batch = append(batch, e)
			bytes += e.Bytes
			next := e.key.first
			if !limit.Runs || e.Solo || next == nil || !next.follows(e) || !fits(next) {
				break
			}
			e = next
		}
	}
	return batch
}

// follows reports whether the entry may be published in one call with the one before it in its key.
func (e *Entry[T]) follows(before *Entry[T]) bool {
	return e.Outlet == before.Outlet && !e.Solo && e.Due.IsZero()
}

// skip passes over dropped entries, and frees the memory of those taken.
func (l *line[T]) skip() {
	for l.start < len(l.entries) && l.entries[l.start].state != entryReady {
		l.entries[l.start] = nil
		l.start++
	}
	if l.start == len(l.entries) || l.start > 1024 && l.start > len(l.entries)/2 {
		n := copy(l.entries, l.entries[l.start:])
		clear(l.entries[n:])
		l.entries, l.start = l.entries[:n], 0
	}
}

// Gate returns the gate that the entry belongs to.
func (e *Entry[T]) Gate() *Gate[T] { return e.gate }
