package membroker

import (
	"errors"
	"fmt"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// maxMisuse bounds the list, so that a test that goes on for ever does not fill the memory.
const maxMisuse = 100

// Misuse returns what callers of PublishBatch did against the contract of [core.Broker], joined, or nil: empty and
// oversized batches, mixed destinations, a key twice in a call under OnePerKey or in two calls at once, too many calls
// at once. Calls go through all the same. Tests of a dispatcher assert that it is nil.
func (b *Broker) Misuse() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.misuse...)
}

// inspect looks for misuse. The caller holds the lock and has counted the call, but not its keys.
func (b *Broker) inspect(batch []core.Prepared) {
	c := b.config
	if len(batch) == 0 {
		b.note(errors.New("the batch is empty"))
	}
	if c.MaxBatch > 0 && len(batch) > c.MaxBatch {
		b.note(fmt.Errorf("a batch of %d messages, MaxBatch is %d", len(batch), c.MaxBatch))
	}
	if b.running > c.MaxInFlight {
		b.note(fmt.Errorf("%d calls at once, MaxInFlight is %d", b.running, c.MaxInFlight))
	}
	size := 0
	seen := make(map[ordering.Key]bool)
	for _, m := range batch {
		size += m.Bytes
		key := m.Record.Key()
		if m.Destination != batch[0].Destination {
			b.note(fmt.Errorf("destinations %q and %q in one batch", batch[0].Destination, m.Destination))
		}
		if seen[key] && c.KeyGuarantee == core.OnePerKey {
			b.note(fmt.Errorf("key %s twice in one batch under OnePerKey", key))
		}
		if !seen[key] && b.busy[key] > 0 {
			b.note(fmt.Errorf("key %s in two calls at once", key))
		}
		seen[key] = true
	}
	if c.MaxBatchBytes > 0 && size > c.MaxBatchBytes {
		b.note(fmt.Errorf("a batch of %d bytes, MaxBatchBytes is %d", size, c.MaxBatchBytes))
	}
}

// note remembers a misuse. The caller holds the lock.
func (b *Broker) note(err error) {
	if len(b.misuse) < maxMisuse {
		b.misuse = append(b.misuse, fmt.Errorf("membroker: misuse in call %d: %w", b.calls, err))
	}
}

// report is note for callers without the lock.
func (b *Broker) report(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(err)
}
