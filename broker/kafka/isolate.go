package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// isolate finds which records of a chunk the broker refuses, so that the others do not suffer for them: the broker may
// have named them; otherwise smaller chunks are tried until one record is alone.
func (c *call) isolate(ctx context.Context, s *share, v verdict) {
	var answer *refusal
	var named []int
	if errors.As(s.err, &answer) {
		named = answer.records
	}
	tooLarge := errors.Is(s.err, kerr.MessageTooLarge) || errors.Is(s.err, kerr.RecordListTooLarge)
	switch {
	case s.chunk == 1:
		c.refuse(s, []int{0}, v, c.explain(ctx, s, tooLarge))
		s.atMost = 0
	case tooLarge:
		c.topic.maxBatchBytes.Store(int64(c.batchLimit(ctx, s)))
	case len(named) > 0:
		c.refuse(s, named, v, s.err)
	default:
		s.atMost = s.chunk / 2
	}
	s.clear() // the rest is encoded anew
}

// refuse gives up records of the chunk for good and closes their keys for this call.
func (c *call) refuse(s *share, places []int, v verdict, err error) {
	if c.closed == nil {
		c.closed = map[ordering.Key]int{}
	}
	slices.Sort(places)
	for _, place := range slices.Backward(slices.Compact(places)) {
		i := s.pending[place]
		r := c.batch[i].Record
		if first, closed := c.closed[r.Key()]; !closed || i < first {
			c.closed[r.Key()] = i
		}
		c.results[i] = core.Result{Outcome: core.OutcomeRejected, Err: &core.PublishError{
			Class: v.class, Scope: v.scope, Code: v.code,
			Err: fmt.Errorf("kafka: event %q for topic %q partition %d: %w", r.EventID, c.topic.name,
				s.partition.index, err),
		}}
		s.pending = slices.Delete(s.pending, place, place+1)
	}
}

// explain adds the sizes to what a broker says about a record that is too large.
func (c *call) explain(ctx context.Context, s *share, tooLarge bool) error {
	if !tooLarge {
		return s.err
	}
	size := fmt.Sprintf("%d bytes", s.size)
	if packed := len(s.data); packed < s.size {
		size = fmt.Sprintf("%d bytes (%d compressed)", s.size, packed)
	}
	limit := "more than the topic's max.message.bytes allows"
	if n := c.topicLimit(ctx); n > 0 {
		limit = fmt.Sprintf("the topic's max.message.bytes is %d", n)
	}
	return fmt.Errorf("the record has %s, %s: %w", size, limit, s.err)
}

// batchLimit is how large a batch may be after the topic refused one: the topic's own limit if it can be read and is
// lower, or half of what was refused.
func (c *call) batchLimit(ctx context.Context, s *share) int {
	if n := c.topicLimit(ctx); n > 0 && n < s.size {
		return n
	}
	return s.size / 2
}

// topicLimit reads the topic's max.message.bytes; 0 when that is not allowed or fails.
func (c *call) topicLimit(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	resources, err := c.admin.DescribeTopicConfigs(ctx, c.topic.name)
	if err != nil {
		return 0
	}
	limit, _ := strconv.Atoi(topicConfigs(resources, c.topic.name)["max.message.bytes"])
	return limit
}
