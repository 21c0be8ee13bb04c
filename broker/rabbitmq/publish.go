package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-outbox/outbox/core"
)

// PublishBatch publishes to one exchange over a channel that no other call uses, many messages ahead of their confirms.
func (b *Broker) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	c := &call{Broker: b, messages: make([]*publication, len(batch)), results: make([]core.Result, len(batch))}
	for i := range batch {
		c.messages[i] = publicationOf(&batch[i])
	}
	ctx, leave, err := b.enter(ctx, b.config.ConfirmTimeout)
	if err != nil {
		c.abandon(c.all(), core.OutcomeRejected, err)
		return c.results
	}
	defer leave()
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
		c.run(ctx)
	case <-ctx.Done():
		c.abandon(c.all(), core.OutcomeSkipped, ctx.Err())
	}
	return c.results
}

// call is one PublishBatch.
type call struct {
	*Broker
	messages []*publication
	results  []core.Result
	again    bool // what is published now may have been stored before
}

// all are the places of all messages.
func (c *call) all() []int {
	all := make([]int, len(c.messages))
	for i := range all {
		all[i] = i
	}
	return all
}

// run publishes all messages. When the server ends the channel because of one of them, those in doubt are published
// again, one by one, which shows the one at fault and delivers its neighbours.
func (c *call) run(ctx context.Context) {
	doubtful := c.publish(ctx, c.all())
	c.again = true
	for _, i := range doubtful {
		c.publish(ctx, []int{i})
	}
}

// publish publishes messages and writes their results. It returns those that are in doubt because of one of them.
func (c *call) publish(ctx context.Context, places []int) (doubtful []int) {
	l, ch, err := c.begin(ctx)
	if err != nil {
		outcome := core.OutcomeRejected
		if ctx.Err() != nil || errors.As(err, new(*blockedError)) {
			outcome = core.OutcomeSkipped
		}
		c.abandonUnsent(places, outcome, err)
		return nil
	}
	places = c.refuseHeaders(places, l.frameMax())
	return newStream(c, l, ch, places).run(ctx)
}

// begin does everything that comes before the first message.
func (c *call) begin(ctx context.Context) (*link, *channel, error) {
	exchange := c.messages[0].exchange
	l, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := l.blockedErr(); err != nil {
		return nil, nil, err
	}
	if err := l.settled(ctx); err != nil {
		return nil, nil, err
	}
	if err := l.find(ctx, exchange); err != nil {
		return nil, nil, err
	}
	ch, err := l.take(ctx, c.config.Window)
	return l, ch, err
}

// refuseHeaders refuses what was prepared for larger frames than this server takes.
func (c *call) refuseHeaders(places []int, frameMax int) []int {
	good := make([]int, 0, len(places))
	for _, i := range places {
		if m := c.messages[i]; m.headerFrame > frameMax {
			c.results[i] = core.Result{Outcome: core.OutcomeRejected, Err: headersTooLarge(m, frameMax)}
			continue
		}
		good = append(good, i)
	}
	return good
}

// abandonUnsent gives an outcome to messages that were not sent.
func (c *call) abandonUnsent(places []int, outcome core.Outcome, err error) {
	if c.again { // not this time, but before
		outcome = core.OutcomeUnknown
	}
	c.abandon(places, outcome, err)
}

// abandon gives messages an outcome other than delivered.
func (c *call) abandon(places []int, outcome core.Outcome, err error) {
	failed := publishError(fmt.Errorf("rabbitmq: topic %q: %w", c.messages[0].exchange, err))
	for _, i := range places {
		c.results[i] = core.Result{Outcome: outcome, Err: failed}
	}
}
