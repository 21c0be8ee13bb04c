package storetest

import (
	"fmt"
	"slices"

	"github.com/go-outbox/outbox/core"
)

// records are all records of a reply; those of one lane stay in order.
func records(batch core.Batch) []*core.Record {
	var all []*core.Record
	for i := range batch.Lanes {
		all = append(all, batch.Lanes[i].Records...)
	}
	return all
}

func heads(batch core.Batch) []*core.Record {
	var all []*core.Record
	for i := range batch.Lanes {
		all = append(all, batch.Lanes[i].Heads...)
	}
	return all
}

func rewound(batch core.Batch) []int64 {
	var all []int64
	for i := range batch.Lanes {
		all = append(all, batch.Lanes[i].Rewound...)
	}
	return all
}

// laneOf is the part of a reply for one lane.
func laneOf(req core.FetchRequest, batch core.Batch, lane int) *core.LaneBatch {
	i := slices.IndexFunc(req.Lanes, func(q core.LaneFetch) bool { return q.Lane == lane })
	return &batch.Lanes[i]
}

// eventsOf are the event ids of records.
func eventsOf(all []*core.Record) []string {
	ids := make([]string, 0, len(all))
	for _, r := range all {
		ids = append(ids, r.EventID)
	}
	return ids
}

// ofKey are the event ids of one aggregate among records.
func ofKey(all []*core.Record, aggregateID string) []string {
	var ids []string
	for _, r := range all {
		if r.AggregateID == aggregateID {
			ids = append(ids, r.EventID)
		}
	}
	return ids
}

// byEvent finds the record of an event, nil when it is not there.
func byEvent(all []*core.Record, eventID string) *core.Record {
	if i := slices.IndexFunc(all, func(r *core.Record) bool { return r.EventID == eventID }); i >= 0 {
		return all[i]
	}
	return nil
}

// replyFaults is what holds for every reply to any request. Cases call fetch, which checks it each time.
func replyFaults(req core.FetchRequest, batch core.Batch) []string {
	if len(batch.Lanes) != len(req.Lanes) {
		return []string{fmt.Sprintf("fetch of %d lanes answered %d", len(req.Lanes), len(batch.Lanes))}
	}
	var faults []string
	size, count := 0, 0
	for i := range req.Lanes {
		faults = append(faults, laneFaults(&req.Lanes[i], &batch.Lanes[i])...)
		for _, r := range batch.Lanes[i].Records {
			count++
			size += r.Size()
		}
	}
	if count > req.MaxRecords {
		faults = append(faults, fmt.Sprintf("fetch returned %d records, MaxRecords is %d", count, req.MaxRecords))
	}
	if count > 1 && size > req.MaxBytes {
		faults = append(faults, fmt.Sprintf("fetch returned %d records of %d bytes, MaxBytes is %d", count, size, req.MaxBytes))
	}
	return faults
}

func laneFaults(q *core.LaneFetch, reply *core.LaneBatch) []string {
	var faults []string
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("lane %d: ", q.Lane)+fmt.Sprintf(format, args...))
	}
	if reply.Refused || reply.Reset {
		if len(reply.Records)+len(reply.Heads) > 0 {
			bad("refused or reset, and yet it has records")
		}
		return faults
	}
	if q.RewindFrom != 0 && reply.After >= q.RewindFrom {
		bad("After is %d although RewindFrom is %d", reply.After, q.RewindFrom)
	}
	last := int64(0)
	for _, r := range reply.Records {
		if r.ID <= last {
			bad("record %s with id %d comes after id %d", r.EventID, r.ID, last)
		}
		last = r.ID
		if r.Lane != q.Lane {
			bad("record %s is of lane %d", r.EventID, r.Lane)
		}
		if slices.Contains(q.Held, r.ID) {
			bad("record %s is held and was returned", r.EventID)
		}
		for _, c := range q.Closed {
			if c.Key == r.Key() && c.Head <= reply.After {
				bad("record %s is of the closed key %s, whose head %d is not above After %d", r.EventID, c.Key, c.Head, reply.After)
			}
		}
	}
	for _, r := range reply.Heads {
		if !slices.Contains(q.Heads, core.RecordRef{ID: r.ID, EventID: r.EventID}) {
			bad("head %s with id %d was not asked for", r.EventID, r.ID)
		}
	}
	return faults
}
