package sqs

import (
	"strconv"
	"testing"
	"time"
)

// The memory for the last ids is bounded, and it says so when it has given up ids that count.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	r := &recent{}
	for i := range maxRecent {
		r.add(start.Add(time.Duration(i)*time.Millisecond), strconv.Itoa(i))
	}
	now := start.Add(maxRecent * time.Millisecond)
	if ids, complete := r.since(now); len(ids) != maxRecent || !complete {
		t.Errorf("%d ids, complete %t, want all %d", len(ids), complete, maxRecent)
	}
	r.add(now, "next")
	ids, complete := r.since(now)
	if len(ids) != maxRecent/2+1 || ids[0] != strconv.Itoa(maxRecent/2) || ids[len(ids)-1] != "next" || complete {
		t.Errorf("%d ids from %s to %s, complete %t, want the younger half", len(ids), ids[0], ids[len(ids)-1], complete)
	}
	if ids, complete := r.since(now.Add(vanishing - 1)); len(ids) != 1 || !complete {
		t.Errorf("%d ids, complete %t after a minute, want the last one", len(ids), complete)
	}
}
