package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-outbox/outbox/core"
)

func cutCases() []Case {
	return []Case{
		rule("Fetch/CutByRecordsSaysUpTo", cutByRecordsSaysUpTo),
		rule("Fetch/CutByBytesReturnsAtLeastOne", cutByBytes),
		rule("Fetch/ACutReplyCoversWhatItSays", cutReplyCoversWhatItSays),
		rule("Fetch/ACutStarvesNoLane", cutStarvesNoLane),
	}
}

// UpTo tells the dispatcher what a reply says about records it does not contain: a closed key whose head is below UpTo
// and not there is gone, one above was not reached.
func cutByRecordsSaysUpTo(f *fixture) {
	f.enqueue(events("a", 1, 5)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 5)...)
	r.letGo()

	req := rewind(r.request(), 1)
	req.MaxRecords = 2
	batch := r.fetch(req)
	equal(f, eventsOf(records(batch)), eventIDs("a", 1, 2), "with MaxRecords 2")
	if upTo := laneOf(req, batch, all[0].Lane).UpTo; upTo >= all[2].ID {
		f.Errorf("UpTo is %d, but the record with id %d was cut off", upTo, all[2].ID)
	}

	req.MaxRecords = 5
	batch = r.fetch(req)
	equal(f, eventsOf(records(batch)), eventIDs("a", 1, 5), "with MaxRecords 5")
	req.MaxRecords = 6
	batch = r.fetch(req)
	if upTo := laneOf(req, batch, all[0].Lane).UpTo; upTo != core.EverythingAbove {
		f.Errorf("UpTo is %d in a reply that was not cut, want EverythingAbove", upTo)
	}
}

// A backlog of large payloads must not be read into memory at once, and one that is larger than the budget must not
// stay behind for ever.
func cutByBytes(f *fixture) {
	var messages []core.Message
	for n := 1; n <= 4; n++ {
		m := event("a", n)
		m.Payload = []byte(`"` + strings.Repeat("x", 10_000) + `"`)
		messages = append(messages, m)
	}
	f.enqueue(messages...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 4)...)
	r.letGo()
	for _, c := range []struct {
		maxBytes int
		want     int
	}{{1, 1}, {15_000, 1}, {25_000, 2}, {100_000, 4}} {
		req := rewind(r.request(), 1)
		req.MaxBytes = c.maxBytes
		batch := r.fetch(req)
		equal(f, eventsOf(records(batch)), eventIDs("a", 1, c.want), fmt.Sprint("with MaxBytes ", c.maxBytes))
		if upTo := laneOf(req, batch, all[0].Lane).UpTo; c.want < 4 && upTo >= all[c.want].ID {
			f.Errorf("MaxBytes %d: UpTo is %d, but the record with id %d was cut off", c.maxBytes, upTo, all[c.want].ID)
		}
	}
}

// After and UpTo are a promise; every reply on the way through a backlog is held against the whole table.
func cutReplyCoversWhatItSays(f *fixture) {
	var messages []core.Message
	for n := 1; n <= 8; n++ {
		for key := range 25 {
			messages = append(messages, event(fmt.Sprint("k", key), n))
		}
	}
	want := f.enqueue(messages...)
	r := f.join("m")
	all := r.await(want...)
	for _, maxRecords := range []int{1, 7, 64} {
		r.letGo()
		got := 0
		for req := rewind(r.request(), 1); got < len(all); req = r.request() {
			req.MaxRecords = maxRecords
			batch := r.fetch(req)
			for _, fault := range uncovered(req, batch, all) {
				f.Fatalf("MaxRecords %d: %s", maxRecords, fault)
			}
			fetched := records(batch)
			if len(fetched) == 0 {
				f.Fatalf("MaxRecords %d: nothing returned with %d of %d records left", maxRecords, len(all)-got, len(all))
			}
			for _, record := range fetched {
				r.hold(record)
			}
			got += len(fetched)
		}
	}
}

// uncovered names the records that a reply promises and does not contain.
func uncovered(req core.FetchRequest, batch core.Batch, all []*core.Record) []string {
	var faults []string
	for i, lane := range batch.Lanes {
		for _, record := range all {
			if record.Lane != req.Lanes[i].Lane || record.ID <= lane.After || record.ID > lane.UpTo ||
				slices.Contains(req.Lanes[i].Held, record.ID) || byEvent(lane.Records, record.EventID) != nil {
				continue
			}
			faults = append(faults, fmt.Sprintf("lane %d: the reply covers ids above %d up to %d, but %s with id %d is missing",
				record.Lane, lane.After, lane.UpTo, record.EventID, record.ID))
		}
	}
	return faults
}

func cutStarvesNoLane(f *fixture) {
	busy, quiet := f.twoLanes()
	f.enqueue(events(busy, 1, 50)...)
	f.enqueue(event(quiet, 1))
	f.enqueue(events(busy, 51, 100)...)
	r := f.join("m")
	for range 101 {
		req := r.request()
		req.MaxRecords = 10
		for _, record := range records(r.fetch(req)) {
			if record.AggregateID == quiet {
				return
			}
			r.hold(record)
		}
	}
	f.Errorf("the only record of a lane never came beside 100 of another one")
}
