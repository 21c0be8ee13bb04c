package sqlite

import (
	"sync"

	"github.com/go-outbox/outbox/core"
)

// cursor remembers how far a lane was returned under its current lease, so that every record is returned once.
type cursor struct {
	mu sync.Mutex
	// epoch is that of the lease which the rest belongs to.
	epoch int64
	// position is an id up to which everything was returned, was held, or was left out for a closed key.
	position int64
	// rewound are ids of rewinds that were read, until a fetch has succeeded and told them.
	rewound []int64
}

// start returns the id after which a fetch for lane has to read.
func (c *cursor) start(lane core.LaneFetch) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lane.Epoch > c.epoch {
		c.epoch, c.position, c.rewound = lane.Epoch, 0, nil
	}
	if lane.Epoch < c.epoch {
		return 0
	}
	if lane.RewindFrom > 0 {
		c.position = min(c.position, lane.RewindFrom-1)
	}
	return c.position
}

// report keeps ids of rewinds that were read, and are about to be deleted, until finish hands them out.
func (c *cursor) report(epoch int64, ids []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch {
		c.rewound = append(c.rewound, ids...)
	}
}

// finish notes what a successful fetch covered and returns the rewinds to report.
func (c *cursor) finish(epoch, position int64) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return nil
	}
	rewound := c.rewound
	c.position, c.rewound = position, nil
	return rewound
}
