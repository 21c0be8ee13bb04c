package sqs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// carefulBytes is what requests are filled up to while a queue's limit cannot be read: the limit of queues made before
// 2025.
const carefulBytes = 256 << 10

// queues finds queues and remembers them.
type queues struct {
	client *sdk.Client
	config Config

	mu    sync.Mutex
	known map[string]*queue
}

// queue is a queue that was found.
type queue struct {
	destination string // its name, or its URL where that is configured
	url         string
	maxMessage  int           // bytes of one message
	maxRequest  int           // bytes of all messages of one request
	gone        chan struct{} // closed once SQS has said that the queue does not exist
	recent      *recent
}

// find returns a queue. One whose limit is less than need is looked at again, as limits are raised sometimes; the
// message is parked otherwise, so that this is rare.
func (q *queues) find(ctx context.Context, destination string, need int) (*queue, error) {
	q.mu.Lock()
	found := q.known[destination]
	q.mu.Unlock()
	if found != nil && need <= found.maxMessage {
		return found, nil
	}
	fresh, err := q.lookUp(ctx, destination)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := q.known[destination]; now != nil && now != found {
		return now, nil // another call was faster
	}
	if found != nil {
		fresh.recent = found.recent
	}
	q.known[destination] = fresh
	return fresh, nil
}

// forget makes the next call look a queue up again. It reports whether this call was the first to ask for it.
func (q *queues) forget(dead *queue) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known[dead.destination] == dead {
		delete(q.known, dead.destination)
	}
	if dead.isGone() {
		return false
	}
	close(dead.gone)
	return true
}

func (q *queue) isGone() bool {
	select {
	case <-q.gone:
		return true
	default:
		return false
	}
}

// lookUp asks SQS.
func (q *queues) lookUp(ctx context.Context, destination string) (*queue, error) {
	url, err := q.urlOf(ctx, destination)
	if err != nil {
		return nil, err
	}
	found := &queue{destination: destination, url: url, gone: make(chan struct{}), recent: &recent{}}
	if limit := q.config.MaxMessageBytes; limit > 0 {
		found.maxMessage, found.maxRequest = limit, limit
		return found, nil
	}
	attributes, err := q.attributesOf(ctx, url, types.QueueAttributeNameMaximumMessageSize)
	limit, errNumber := strconv.Atoi(attributes[string(types.QueueAttributeNameMaximumMessageSize)])
	switch {
	case err != nil && classify(err).code != codeAccessDenied:
		return nil, err
	case err != nil, errNumber != nil: // we may not know: SQS tells us when a message is too large
		found.maxMessage, found.maxRequest = MaxMessageBytes, carefulBytes
	default:
		found.maxMessage, found.maxRequest = limit, limit
	}
	return found, nil
}

func (q *queues) urlOf(ctx context.Context, destination string) (string, error) {
	if strings.Contains(destination, "://") {
		return destination, nil
	}
	ctx, cancel := context.WithTimeout(ctx, q.config.RequestTimeout)
	defer cancel()
	out, err := q.client.GetQueueUrl(ctx, &sdk.GetQueueUrlInput{QueueName: &destination}, once)
	if err != nil {
		return "", fmt.Errorf("get the queue's URL: %w", err)
	}
	return aws.ToString(out.QueueUrl), nil
}

func (q *queues) attributesOf(
	ctx context.Context, url string, names ...types.QueueAttributeName,
) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, q.config.RequestTimeout)
	defer cancel()
	out, err := q.client.GetQueueAttributes(ctx, &sdk.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names}, once)
	if err != nil {
		return nil, fmt.Errorf("get the queue's attributes: %w", err)
	}
	return out.Attributes, nil
}

const (
	// vanishing is how long after its deletion a queue may still answer that messages were stored.
	vanishing = 60 * time.Second
	// maxRecent bounds the memory for the ids of such messages.
	maxRecent = 2000
)

// recent are the ids of the events sent to a queue last: the older half of what is kept is given up when it is full.
type recent struct {
	mu     sync.Mutex
	sent   []sentEvent
	lostAt time.Time // when the youngest of those was sent that were given up
}

type sentEvent struct {
	id string
	at time.Time
}

func (r *recent) add(now time.Time, ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if len(r.sent) == maxRecent {
			r.lostAt = r.sent[maxRecent/2-1].at
			r.sent = r.sent[:copy(r.sent, r.sent[maxRecent/2:])]
		}
		r.sent = append(r.sent, sentEvent{id, now})
	}
}

// since returns the ids of the last 60 s, oldest first, and whether they are all of them.
func (r *recent) since(now time.Time) (ids []string, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.sent {
		if now.Sub(e.at) < vanishing {
			ids = append(ids, e.id)
		}
	}
	return ids, now.Sub(r.lostAt) >= vanishing
}
