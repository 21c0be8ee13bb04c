package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

// share is the part of a call for one partition. One chunk of its records is on the way at a time.
type share struct {
	partition *partition
	pending   []int // records to publish, in order, as indexes into the batch
	chunk     int   // how many of them are in data
	atMost    int   // bounds the next chunk while a record that is refused is looked for; 0 means no bound

	// What follows is of the chunk.
	data    []byte // the record batch; nil when the next chunk is to be encoded
	size    int    // of data before compression
	stamped bool   // data says as whom it is sent
	refused bool   // the leader does not accept the producer id
	tries   int    // repeats
	unsure  bool   // a try has an unknown outcome
	err     error  // of the last try; nil before the first
}

// clear makes room for the next chunk.
func (s *share) clear() {
	*s = share{partition: s.partition, pending: s.pending, atMost: s.atMost}
}

// encode makes the next chunk, if it is not made yet: as many records as the topic takes in one batch.
func (c *call) encode(s *share) {
	if s.data != nil {
		return
	}
	c.skipClosed(s)
	if len(s.pending) == 0 {
		return
	}
	limit := c.config.MaxMessageBytes
	if learned := int(c.topic.maxBatchBytes.Load()); learned > 0 {
		limit = min(limit, learned)
	}
	size := batchOverhead
	records := make([]*record, 0, len(s.pending))
	for _, i := range s.pending {
		r := recordOf(&c.batch[i])
		more := recordSize(len(records), len(r.body))
		if len(records) > 0 && (size+more > limit || len(records) == s.atMost) {
			break
		}
		records = append(records, r)
		size += more
	}
	s.chunk, s.size = len(records), size
	s.data = c.encoder.encode(records, size, time.Now())
}

// skipClosed takes out what comes after a refused record of its key.
func (c *call) skipClosed(s *share) {
	if len(c.closed) == 0 {
		return
	}
	s.pending = slices.DeleteFunc(s.pending, func(i int) bool {
		refused, closed := c.closed[c.batch[i].Record.Key()]
		skip := closed && i > refused
		if skip {
			c.results[i] = core.Result{Outcome: core.OutcomeSkipped, Err: &core.PublishError{
				Class: core.ClassTransient, Scope: core.ScopeKey, Code: "SKIPPED", Err: errEarlierOnes,
			}}
		}
		return skip
	})
}

// settle takes in what became of a chunk and returns what has to happen before it is tried again.
func (c *call) settle(ctx context.Context, s *share) cure {
	if s.err == nil {
		c.delivered(s)
		return cureNone
	}
	v := classify(s.err)
	switch {
	case v.outcome == core.OutcomeDelivered:
		c.delivered(s)
		return cureNone
	case v.cure == cureIsolate:
		if s.unsure { // the smaller batches to come must not meet the numbers of this one
			s.partition.identity = c.producers.fence(s.partition.identity)
		}
		c.isolate(ctx, s, v)
		return cureNone
	}
	s.unsure = s.unsure || v.outcome == core.OutcomeUnknown
	if v.cure == cureNone || s.tries >= c.config.Retries || ctx.Err() != nil {
		c.abandon(s, s.err)
		return cureNone
	}
	s.tries++
	if v.cure == cureRenew {
		c.config.Logger.WarnContext(ctx, "kafka: the leader does not accept our producer id any more; getting another",
			"topic", c.topic.name, "partition", s.partition.index, "code", v.code)
		s.stamped, s.refused = false, true
	}
	return v.cure
}

func (c *call) delivered(s *share) {
	s.partition.identity.stored(s.chunk)
	for _, i := range s.pending[:s.chunk] {
		c.results[i] = core.Result{Outcome: core.OutcomeDelivered}
	}
	s.pending = s.pending[s.chunk:]
	s.clear()
}

// abandon ends a share: the chunk on the way failed, what comes after it is not tried.
func (c *call) abandon(s *share, err error) {
	outcome := core.OutcomeRejected
	if s.unsure {
		outcome = core.OutcomeUnknown
		s.partition.identity = c.producers.fence(s.partition.identity)
	}
	failed := publishError(fmt.Errorf("kafka: topic %q partition %d: %w", c.topic.name, s.partition.index, err))
	for n, i := range s.pending {
		if n >= s.chunk {
			outcome = core.OutcomeSkipped
		}
		c.results[i] = core.Result{Outcome: outcome, Err: failed}
	}
	s.pending = nil
	s.clear()
}
