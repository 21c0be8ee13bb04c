package kafka

import (
	"context"
	"math"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// identity is as whom we write to one partition. The leader of the partition remembers it: it takes a batch of a known
// producer and epoch only with the next sequence number, answers a repeat without storing it again, and refuses every
// batch of an older epoch.
type identity struct {
	producer int64 // -1 for none
	epoch    int16
	sequence int32
}

// nobody is an identity still to be given, and that of producers without idempotence.
func nobody() identity { return identity{producer: -1, epoch: -1, sequence: -1} }

// stored counts records that the leader has taken.
func (id *identity) stored(records int) {
	if id.producer < 0 {
		return
	}
	n := int32(records) //nolint:gosec // a batch holds far fewer
	if id.sequence > math.MaxInt32-n {
		id.sequence = n - (math.MaxInt32 - id.sequence) - 1 // sequence numbers wrap to 0
		return
	}
	id.sequence += n
}

// producers gives out identities. The partitions share a producer id until one of them has it refused, and they share
// its epochs: a leader keeps them by partition, but nobody is surprised by a producer with one epoch at a time.
type producers struct {
	client *kgo.Client
	asking chan struct{} // held by the one who asks for a producer id

	mu     sync.Mutex
	newest identity // the producer id for new partitions and its newest epoch
}

func newProducers(client *kgo.Client) *producers {
	return &producers{client: client, asking: make(chan struct{}, 1), newest: nobody()}
}

// next returns as whom to write a new batch to a partition: as before, or from the beginning of a newer epoch.
func (p *producers) next(id identity) identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id.producer == p.newest.producer && id.epoch < p.newest.epoch {
		return p.newest
	}
	return id
}

// fence begins a new epoch. From the first batch of it on, the leader refuses what it may still receive of the old one:
// an abandoned request can be anywhere between here and the leader, and closing its connection does not recall it.
func (p *producers) fence(id identity) identity {
	if id.producer < 0 {
		return id
	}
	if id.epoch == math.MaxInt16 {
		return nobody() // begin anew under another producer id
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fenced := identity{producer: id.producer, epoch: id.epoch + 1}
	if id.producer == p.newest.producer {
		fenced.epoch = max(fenced.epoch, p.newest.epoch)
		p.newest = fenced
	}
	return fenced
}

// renew returns an identity under another producer id than the one of old.
func (p *producers) renew(ctx context.Context, old identity) (identity, error) {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return old, ctx.Err()
	}
	if newest := p.current(); newest.producer >= 0 && newest.producer != old.producer && newest.epoch < math.MaxInt16 {
		return newest, nil
	}
	response, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, p.client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err != nil {
		return old, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = identity{producer: response.ProducerID, epoch: response.ProducerEpoch}
	return p.newest, nil
}

func (p *producers) current() identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest
}
