package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// PublishBatch publishes to one topic: for each partition one batch after the other, for each leader one request at a
// time that carries a batch of each of its partitions.
func (b *Broker) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	c := &call{
		Broker: b, batch: batch, results: make([]core.Result, len(batch)), topic: b.topics.named(batch[0].Destination),
	}
	ctx, leave, err := b.enter(ctx, b.config.DeliveryTimeout)
	if err != nil {
		c.abandonAll(core.OutcomeRejected, err)
		return c.results
	}
	defer leave()
	c.run(ctx)
	return c.results
}

// call is one PublishBatch.
type call struct {
	*Broker
	batch   []core.Prepared
	results []core.Result
	topic   *topic
	layout  *layout
	shares  []*share
	// closed are the keys of which a message was refused although its neighbours go on, with its place in the batch.
	closed map[ordering.Key]int
}

func (c *call) run(ctx context.Context) {
	if err := c.begin(ctx); err != nil {
		outcome := core.OutcomeRejected
		if ctx.Err() != nil {
			outcome = core.OutcomeSkipped
		}
		c.abandonAll(outcome, err)
		return
	}
	defer c.endTurns()
	for pause := c.config.RetryBackoff; ctx.Err() == nil; {
		open := c.open()
		if len(open) == 0 {
			return
		}
		c.send(ctx, open)
		var cures cureSet
		for _, s := range open {
			cures.add(c.settle(ctx, s))
		}
		if cures == 0 {
			continue
		}
		if wait(ctx, pause) != nil {
			break
		}
		pause *= 2
		if cures.has(cureLocate) {
			c.relocate(ctx)
		}
	}
	c.giveUp(ctx.Err())
}

// begin does everything that comes before the first request.
func (c *call) begin(ctx context.Context) error {
	layout, err := c.locate(ctx)
	if err != nil {
		return &unsentError{err}
	}
	c.layout = layout
	c.split()
	for _, s := range c.shares {
		c.encode(s) // before taking turns, so that the next call prepares while this one waits
	}
	return c.takeTurns(ctx)
}

// locate finds the partitions. A topic that brokers may create is there a moment after it was asked for.
func (c *call) locate(ctx context.Context) (*layout, error) {
	pause := c.config.RetryBackoff
	for try := 0; ; try++ {
		layout, err := c.topics.locate(ctx, c.topic)
		if err == nil {
			return layout, nil
		}
		v := classify(&unsentError{err})
		// Not when no broker answers: the client has tried them all, more than once.
		passing := v.scope == core.ScopeDestination && v.cure != cureNone &&
			(v.class == core.ClassUnavailable || c.config.AllowAutoTopicCreation)
		if !passing || try >= c.config.Retries || wait(ctx, pause) != nil {
			return nil, err
		}
		pause *= 2
	}
}

// relocate finds the leaders anew. When that fails, the next try fails and says why.
func (c *call) relocate(ctx context.Context) {
	layout, err := c.topics.reload(ctx, c.topic, c.layout)
	switch {
	case err != nil:
	case layout.id != c.layout.id:
		// The partitions and all that we know of them are gone; the next call begins with the new ones.
		for _, s := range c.open() {
			c.abandon(s, errRecreated)
		}
	default:
		c.layout = layout
	}
}

// split gives each record to the share of its partition. Shares are in the order of partitions, in which all calls take
// their turns, so that none waits for another in a circle.
func (c *call) split() {
	partitions := c.layout.partitions
	byPartition := make([]*share, len(partitions))
	keyless := -1
	for i := range c.batch {
		r := recordOf(&c.batch[i])
		var pick int
		if r.hasKey {
			pick = c.partition.hash(r.key, c.layout.spread)
		} else {
			if keyless < 0 { // all of a call to one partition, for large batches
				keyless = int(c.topic.rotation.Add(1)) % c.layout.spread
			}
			pick = keyless
		}
		s := byPartition[pick]
		if s == nil {
			s = &share{partition: partitions[pick]}
			byPartition[pick] = s
			c.shares = append(c.shares, s)
		}
		s.pending = append(s.pending, i)
	}
	slices.SortFunc(c.shares, func(a, b *share) int { return cmp.Compare(a.partition.index, b.partition.index) })
}

// open returns the shares with records still to publish, their next chunk encoded.
func (c *call) open() []*share {
	open := make([]*share, 0, len(c.shares))
	for _, s := range c.shares {
		if c.encode(s); s.data != nil {
			open = append(open, s)
		}
	}
	return open
}

// takeTurns waits until no other call writes to the partitions.
func (c *call) takeTurns(ctx context.Context) error {
	for n, s := range c.shares {
		select {
		case s.partition.turn <- struct{}{}:
			continue
		case <-ctx.Done():
		}
		for _, taken := range c.shares[:n] {
			<-taken.partition.turn
		}
		return ctx.Err()
	}
	return nil
}

func (c *call) endTurns() {
	for _, s := range c.shares {
		<-s.partition.turn
	}
}

// giveUp ends the shares that are not done when ctx has ended.
func (c *call) giveUp(ended error) {
	for _, s := range c.shares {
		switch {
		case len(s.pending) == 0:
		case s.err == nil:
			s.chunk = 0 // not tried yet
			c.abandon(s, ended)
		default:
			c.abandon(s, fmt.Errorf("%w; the last try: %w", ended, s.err))
		}
	}
}

// abandonAll ends a call that has sent nothing.
func (c *call) abandonAll(outcome core.Outcome, err error) {
	failed := publishError(fmt.Errorf("kafka: topic %q: %w", c.topic.name, err))
	for i := range c.results {
		c.results[i] = core.Result{Outcome: outcome, Err: failed}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
