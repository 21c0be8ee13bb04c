package load

import (
	"encoding/json"
	"fmt"
)

// Check takes what consumers read and holds it to the promise: every number from 1 to the count, the first occurrences
// of each key in growing order. Not safe for concurrent use.
type Check struct {
	seen    []bool
	last    map[string]int
	missing int
	repeats int
}

// NewCheck expects the events 1 to rows.
func NewCheck(rows int) *Check {
	return &Check{seen: make([]bool, rows+1), last: map[string]int{}, missing: rows}
}

// Add takes one message; an error means that the run is void.
func (c *Check) Add(body []byte) error {
	var event struct {
		N   int
		Key string
	}
	if err := json.Unmarshal(body, &event); err != nil || event.N < 1 || event.N >= len(c.seen) {
		return fmt.Errorf("void: a message that was never enqueued: %.60s", body)
	}
	if c.seen[event.N] {
		c.repeats++
		return nil
	}
	c.seen[event.N] = true
	c.missing--
	if last := c.last[event.Key]; last > event.N {
		return fmt.Errorf("void: %s: event %d came after %d", event.Key, event.N, last)
	}
	c.last[event.Key] = event.N
	return nil
}

// Missing is how many events have not come.
func (c *Check) Missing() int { return c.missing }

// Absent are the first few that have not come.
func (c *Check) Absent() (numbers []int) {
	const few = 20
	for n := 1; n < len(c.seen) && len(numbers) < few; n++ {
		if !c.seen[n] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// Repeats is how many came more than once.
func (c *Check) Repeats() int { return c.repeats }
