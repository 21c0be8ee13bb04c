package brokertest

import (
	"slices"
	"strings"

	"github.com/go-outbox/outbox/core"
)

// read returns what is stored for a topic.
func (f *fixture) read(topic string) log { return f.server.Read(topic) }

// log is what was read of a topic.
type log []Message

// find returns the copies of an event.
func (l log) find(eventID string) log {
	var out log
	for _, m := range l {
		if m.eventID() == eventID {
			out = append(out, m)
		}
	}
	return out
}

// firsts returns the first occurrences of the records' events, as indexes into records, in the order of the log.
func (l log) firsts(records []*core.Record) []int {
	position := map[string]int{}
	for i, r := range records {
		position[r.EventID] = i
	}
	var out []int
	for _, m := range l {
		if i, ok := position[m.eventID()]; ok {
			out = append(out, i)
			delete(position, m.eventID())
		}
	}
	return out
}

// copies returns how many messages of the log are of these records.
func (l log) copies(records ...*core.Record) int {
	n := 0
	for _, m := range l {
		if slices.Contains(eventIDs(records), m.eventID()) {
			n++
		}
	}
	return n
}

// wantOrder checks that the first occurrences of all records are in the log in their order.
func (f *fixture) wantOrder(l log, records []*core.Record) {
	f.Helper()
	got := l.firsts(records)
	if len(got) != len(records) {
		f.Fatalf("%d of %d delivered messages are in the topic", len(got), len(records))
	}
	if !slices.IsSorted(got) {
		f.Fatalf("the messages of one key are stored in the order %v, want ascending", got)
	}
}

// wantAgreement checks that results tell the truth: delivered is stored, rejected and skipped are not. The events must
// not have been published before.
func (f *fixture) wantAgreement(l log, records []*core.Record, results []core.Result) {
	f.Helper()
	for i, r := range results {
		switch stored := l.copies(records[i]) > 0; {
		case r.Outcome == core.OutcomeDelivered && !stored:
			f.Errorf("message %d is reported as delivered but is not in the topic", i)
		case r.Outcome == core.OutcomeRejected && stored, r.Outcome == core.OutcomeSkipped && stored:
			f.Errorf("message %d is reported as %v but is in the topic: must be unknown or delivered", i, r.Outcome)
		}
	}
}

// outcomes is a list of results for error texts.
func outcomes(results []core.Result) string {
	words := make([]string, len(results))
	for i, r := range results {
		words[i] = r.Outcome.String()
	}
	return strings.Join(words, " ")
}
