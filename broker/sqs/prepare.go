package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// entry is a message as Prepare leaves it: all but its id within a request.
type entry struct {
	message types.SendMessageBatchRequestEntry
	bytes   int
	// lane is what is kept in order within a call: the group, and where there is none, the key.
	lane string
}

// entryOf returns what Prepare made.
func entryOf(p *core.Prepared) *entry {
	return p.Native.(*entry) //nolint:errcheck // another broker's message would be a fault of the caller
}

// Prepare encodes the record. For a FIFO queue the message group is the strategy's token, and the event id when there
// is none; the de-duplication id is the event id, "<id>.r<n>" for the nth replay, and a hash of that where SQS does not
// take it. What it refuses: records larger than Config.MaxMessageBytes or than SQS ever takes, headers that are not
// text, and tokens that are no group id.
func (b *Broker) Prepare(r *core.Record) (core.Prepared, error) {
	route, err := b.config.Strategy.Route(ordering.Input{
		Topic: r.Topic, AggregateType: r.AggregateType, AggregateID: r.AggregateID, EventID: r.EventID,
	})
	if err != nil {
		return core.Prepared{}, refuse("NO_ROUTE", "event %q: %w", r.EventID, err)
	}
	queue := b.config.queueOf(route.Destination)
	e := &entry{lane: r.Key().String()}
	if isFIFO(queue) {
		dedup := deduplicationID(r)
		group := route.Token
		if group == "" {
			group = legalID(r.EventID)
		} else {
			e.lane = group
		}
		if !isLegalID(group) {
			return core.Prepared{}, refuse("INVALID_GROUP", "event %q for queue %q: the ordering strategy gives the "+
				"token %q; a message group is 1 to 128 visible ASCII characters", r.EventID, queue, group)
		}
		e.message.MessageGroupId, e.message.MessageDeduplicationId = &group, &dedup
	} else if b.config.ordered() {
		return core.Prepared{}, &core.PublishError{
			Class: core.ClassMisconfigured, Scope: core.ScopeDestination, Code: "NOT_FIFO",
			Err: fmt.Errorf("sqs: queue %q %s", queue, needsFIFO),
		}
	}
	body, encoding := encodeBody(r.Payload)
	attributes, err := encodeAttributes(r, encoding)
	if err != nil {
		return core.Prepared{}, refuse("INVALID_HEADER", "event %q for queue %q: %w", r.EventID, queue, err)
	}
	e.message.MessageBody, e.message.MessageAttributes = &body, attributes
	e.bytes = sizeOf(body, attributes)
	if e.bytes > b.prepareLimit() {
		return core.Prepared{}, tooLarge(r.EventID, queue, e.bytes, b.prepareLimit())
	}
	return core.Prepared{Record: r, Destination: queue, Bytes: e.bytes, Native: e}, nil
}

// prepareLimit is the limit that is known without asking a queue.
func (b *Broker) prepareLimit() int {
	if b.config.MaxMessageBytes > 0 {
		return b.config.MaxMessageBytes
	}
	return MaxMessageBytes
}

func tooLarge(eventID, queue string, size, limit int) *core.PublishError {
	return refuse("MESSAGE_TOO_LARGE", "event %q for queue %q has %d bytes with its attributes, the limit is %d",
		eventID, queue, size, limit)
}

// refuse is the error for what can never be published.
func refuse(code, format string, args ...any) *core.PublishError {
	return &core.PublishError{
		Class: core.ClassPermanent, Scope: core.ScopeMessage, Code: code,
		Err: fmt.Errorf("sqs: "+format, args...),
	}
}

// deduplicationID is the event id, salted for replays: within 5 minutes SQS would answer a replay with success and drop
// it. It does not depend on the key, as event ids are unique in an outbox whatever their key. An event whose own id
// ends like that of a replay is hashed, so that it is never taken for the replay of another.
func deduplicationID(r *core.Record) string {
	id := r.EventID
	if at := strings.LastIndex(id, replayMark); at >= 0 && isNumber(id[at+len(replayMark):]) {
		id = hashed(id)
	}
	if r.Replay > 0 {
		id += replayMark + strconv.Itoa(r.Replay)
	}
	return legalID(id)
}

const (
	replayMark = ".r"
	hashPrefix = "h."
	maxIDBytes = 128
)

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// isLegalID says whether SQS takes it as a group or de-duplication id.
func isLegalID(id string) bool {
	for i := range len(id) {
		if id[i] < '!' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxIDBytes
}

// legalID is the id itself where SQS takes it, and otherwise a hash of it.
func legalID(id string) string {
	if isLegalID(id) && !strings.HasPrefix(id, hashPrefix) {
		return id
	}
	return hashed(id)
}

func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hashPrefix + hex.EncodeToString(sum[:])
}
