package sqs

import (
	"context"
	"crypto/md5" //nolint:gosec // what SQS answers with; nothing secret depends on it
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/core"
)

// send makes one request, or several when SQS refuses one as a whole for what is in it. There is a result for each
// item, in order.
func (c *call) send(ctx context.Context, items []int) []core.Result {
	results := make([]core.Result, len(items))
	if len(items) == 1 {
		if e := entryOf(&c.batch[items[0]]); e.bytes > c.queue.maxMessage {
			id := c.batch[items[0]].Record.EventID
			results[0] = core.Result{
				Outcome: core.OutcomeRejected, Err: tooLarge(id, c.queue.destination, e.bytes, c.queue.maxMessage),
			}
			return results
		}
	}
	out, err := c.request(ctx, items)
	if err == nil {
		c.account(items, out, results)
		return results
	}
	v := classify(err)
	if v.split && len(items) > 1 {
		return c.halve(ctx, items)
	}
	if v.code == codeNoQueue {
		c.queueGone()
	}
	failed := v.publishError(fmt.Errorf("sqs: queue %q: send %d messages from event %q on: %w", c.queue.destination,
		len(items), c.batch[items[0]].Record.EventID, err))
	for i := range results {
		results[i] = core.Result{Outcome: v.outcome, Err: failed}
	}
	return results
}

// halve sends a refused request in two, one after the other, so that in the end the message at fault stands alone. What
// comes after a failed message of its group is not sent.
func (c *call) halve(ctx context.Context, items []int) []core.Result {
	middle := len(items) / 2
	results := c.send(ctx, items[:middle])
	closed := map[string]*core.PublishError{}
	for i, r := range results {
		if lane := entryOf(&c.batch[items[i]]).lane; r.Outcome != core.OutcomeDelivered && closed[lane] == nil {
			closed[lane] = asPublishError(r.Err)
		}
	}
	results = append(results, make([]core.Result, len(items)-middle)...)
	var open, places []int
	for i, item := range items[middle:] {
		if failed := closed[entryOf(&c.batch[item]).lane]; failed != nil {
			results[middle+i] = core.Result{Outcome: core.OutcomeSkipped, Err: earlierFailed(failed)}
			continue
		}
		open, places = append(open, item), append(places, middle+i)
	}
	if len(open) > 0 {
		for i, r := range c.send(ctx, open) {
			results[places[i]] = r
		}
	}
	return results
}

// request sends. The id of an entry is its place in the request.
func (c *call) request(ctx context.Context, items []int) (*sdk.SendMessageBatchOutput, error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(items))
	for i, item := range items {
		entries[i] = entryOf(&c.batch[item]).message
		entries[i].Id = aws.String(strconv.Itoa(i))
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	return c.client.SendMessageBatch(ctx, &sdk.SendMessageBatchInput{QueueUrl: &c.queue.url, Entries: entries}, once)
}

var (
	errNotNamed = errors.New("the reply does not mention the message")
	errChecksum = errors.New("the checksum in the reply is not that of the message")
	errVanished = errors.New("the reply says stored, but the queue was deleted meanwhile")
)

// account reads the reply to the end: which entries were stored, which were not, and which it does not name.
func (c *call) account(items []int, out *sdk.SendMessageBatchOutput, results []core.Result) {
	failed := func(i int, v verdict, err error) {
		results[i] = core.Result{Outcome: v.outcome, Err: v.publishError(fmt.Errorf("sqs: queue %q: event %q: %w",
			c.queue.destination, c.batch[items[i]].Record.EventID, err))}
	}
	stored := make([]string, 0, len(items))
	for _, entry := range out.Successful {
		i, ok := place(entry.Id, len(items))
		switch {
		case !ok:
		case c.queue.isGone():
			failed(i, verdictVanished, errVanished)
		case !intact(entryOf(&c.batch[items[i]]), entry):
			failed(i, verdictChecksum, errChecksum)
		default:
			results[i] = core.Result{Outcome: core.OutcomeDelivered}
			stored = append(stored, c.batch[items[i]].Record.EventID)
		}
	}
	for _, entry := range out.Failed {
		if i, ok := place(entry.Id, len(items)); ok {
			failed(i, classifyEntry(entry), &entryError{entry})
		}
	}
	for i := range results {
		if results[i].Outcome == core.OutcomeUnknown && results[i].Err == nil {
			failed(i, verdictUnnamed, errNotNamed)
		}
	}
	c.queue.recent.add(time.Now(), stored...)
}

// place is the index that an entry's id stands for.
func place(id *string, n int) (int, bool) {
	i, err := strconv.Atoi(aws.ToString(id))
	return i, err == nil && i >= 0 && i < n
}

// intact says whether SQS has got the body that we sent.
func intact(e *entry, reply types.SendMessageBatchResultEntry) bool {
	if reply.MD5OfMessageBody == nil { // some servers of other makes do not tell
		return true
	}
	sum := md5.Sum([]byte(*e.message.MessageBody)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:]) == *reply.MD5OfMessageBody
}

// queueGone makes the next call look the queue up again, and tells once which events may have gone with it.
func (c *call) queueGone() {
	if !c.queues.forget(c.queue) {
		return
	}
	ids, complete := c.queue.recent.since(time.Now())
	if len(ids) == 0 {
		return
	}
	c.config.Logger.Error("sqs: the queue does not exist any more: these events were sent to it in the last 60 s and may "+
		"be lost; requeue them once the queue is back", "queue", c.queue.destination, "event_ids", ids,
		"all_of_them", complete)
}
