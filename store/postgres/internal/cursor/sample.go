package cursor

import (
	"slices"
	"time"
)

// Snapshot is what pg_current_snapshot() says: all transactions below Xmin are over, those in Open are not, nothing is
// said of those from Xmax on.
type Snapshot struct {
	Xmin, Xmax int64
	Open       []int64 // ascending
}

// sample: whoever drew an id up to last has an xid below xid.
type sample struct{ last, xid int64 }

// samples are those that are not settled yet, ascending in both fields.
type samples struct {
	pending  []sample
	settled  int64 // no transaction that drew an id up to here is open
	snapshot Snapshot
	taken    time.Time
}

const (
	// maxSamples bounds the memory while a transaction stays open for long. Leaving samples out is always right.
	maxSamples = 1024
	// maxFew is how many open transactions a gate may wait for.
	maxFew = 8
	// sampleEvery is how long a fetch waits for a settle, which samples for free, before it samples by itself.
	sampleEvery = 50 * time.Millisecond
)

// add keeps the sample unless another one says as much. Samples of concurrent transactions arrive in any order.
func (s *samples) add(now time.Time, n sample) {
	s.taken = now
	if n.last <= s.settled {
		return
	}
	for _, p := range s.pending {
		if p.last >= n.last && p.xid <= n.xid {
			return
		}
	}
	s.pending = slices.DeleteFunc(s.pending, func(p sample) bool { return n.last >= p.last && n.xid <= p.xid })
	at, _ := slices.BinarySearchFunc(s.pending, n, func(a, b sample) int { return int(a.xid - b.xid) })
	s.pending = slices.Insert(s.pending, at, n)
	if len(s.pending) > maxSamples {
		s.thin()
	}
}

// thin drops every second sample but the newest.
func (s *samples) thin() {
	kept := s.pending[:0]
	for i, p := range s.pending {
		if i%2 == 1 || i == len(s.pending)-1 {
			kept = append(kept, p)
		}
	}
	s.pending = kept
}

// observe settles what the snapshot proves.
func (s *samples) observe(seen Snapshot) {
	s.snapshot = seen
	done := 0
	for done < len(s.pending) && s.pending[done].xid <= seen.Xmin {
		s.settled = max(s.settled, s.pending[done].last)
		done++
	}
	s.pending = slices.Delete(s.pending, 0, done)
}

// gate returns the highest id that all but a few open transactions are past, and these few.
func (s *samples) gate() (int64, []int64) {
	for i := len(s.pending) - 1; i >= 0; i-- {
		p := s.pending[i]
		if p.xid > s.snapshot.Xmax { // transactions above xmax may be open without being in the list
			continue
		}
		open, _ := slices.BinarySearch(s.snapshot.Open, p.xid)
		if open <= maxFew {
			return p.last, slices.Clone(s.snapshot.Open[:open])
		}
	}
	return s.settled, nil
}

// wanted reports whether a fetch should sample so that the mark can follow to the position.
func (s *samples) wanted(now time.Time, position int64) bool {
	covered := s.settled
	if len(s.pending) > 0 {
		covered = max(covered, s.pending[len(s.pending)-1].last)
	}
	return covered < position && now.Sub(s.taken) >= sampleEvery
}

// forget drops everything: it may be of another server.
func (s *samples) forget() {
	*s = samples{taken: s.taken}
}

// union adds to a list what it does not contain.
func union(list, more []int64) []int64 {
	for _, x := range more {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}
