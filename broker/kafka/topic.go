package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// layoutMaxAge is how long the partitions of a topic are taken for known: the default of Kafka's clients, after which
// added partitions are used.
const layoutMaxAge = 5 * time.Minute

// topic is what is known of a topic. It lives as long as the Broker.
type topic struct {
	name string
	// maxBatchBytes bounds batches, uncompressed, below Config.MaxMessageBytes after the topic refused a larger one;
	// 0 means that it has not.
	maxBatchBytes atomic.Int64
	// agreed is how many partitions [Broker.Fingerprint] told last; 0 while it never did. Keys are spread over so many
	// until it is asked again, so that the dispatcher learns of more before a key moves.
	agreed atomic.Int32
	// rotation picks the partition of records without a key.
	rotation atomic.Uint32

	loading chan struct{} // held by the one who asks for a new layout
	layout  atomic.Pointer[layout]
}

// layout is one answer to where the partitions of a topic are.
type layout struct {
	topic      *topic
	id         [16]byte
	loaded     time.Time
	partitions []*partition
	spread     int // how many of them are used
}

// partition is one partition of a topic, the same for all its layouts.
type partition struct {
	index  int32
	leader atomic.Int32 // -1 while there is none
	// turn is held by the call that writes to the partition: one request at a time, so that batches arrive in order
	// and a batch whose fate is unknown can be repeated.
	turn     chan struct{}
	identity identity // of who holds the turn
}

// agree uses all partitions of the layout from now on, and no more when others come.
func (t *topic) agree(l *layout) {
	t.agreed.Store(int32(len(l.partitions))) //nolint:gosec // partitions are few
	if l.spread != len(l.partitions) {
		all := *l
		all.spread = len(l.partitions)
		t.layout.Store(&all)
	}
}

func newPartition(index int32) *partition {
	p := &partition{index: index, turn: make(chan struct{}, 1), identity: nobody()}
	p.leader.Store(-1)
	return p
}

// topics are the topics seen so far.
type topics struct {
	client     *kgo.Client
	logger     *slog.Logger
	pin        int
	autoCreate bool

	mu     sync.Mutex
	byName map[string]*topic
}

func newTopics(client *kgo.Client, config Config) *topics {
	return &topics{
		client:     client,
		logger:     config.Logger,
		pin:        newPartitioner(config.Strategy).pin,
		autoCreate: config.AllowAutoTopicCreation,
		byName:     map[string]*topic{},
	}
}

// named returns the topic of a name, which need not exist at the cluster.
func (ts *topics) named(name string) *topic {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t, ok := ts.byName[name]
	if !ok {
		t = &topic{name: name, loading: make(chan struct{}, 1)}
		ts.byName[name] = t
	}
	return t
}

// locate returns the partitions of the topic from memory, or asks.
func (ts *topics) locate(ctx context.Context, t *topic) (*layout, error) {
	seen := t.layout.Load()
	if seen != nil && time.Since(seen.loaded) < layoutMaxAge {
		return seen, nil
	}
	return ts.reload(ctx, t, seen)
}

// reload asks where the partitions are, unless somebody has done so since the caller saw a layout that did not work.
func (ts *topics) reload(ctx context.Context, t *topic, seen *layout) (*layout, error) {
	select {
	case t.loading <- struct{}{}:
		defer func() { <-t.loading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	known := t.layout.Load()
	if known != seen {
		return known, nil
	}
	answer, err := ts.ask(ctx, t.name)
	if err != nil {
		return nil, err
	}
	next := ts.merge(t, known, answer)
	t.layout.Store(next)
	return next, nil
}

func (ts *topics) ask(ctx context.Context, name string) (*kmsg.MetadataResponseTopic, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = ts.autoCreate
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &name
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(ctx, ts.client)
	if err != nil {
		return nil, err
	}
	if len(response.Topics) != 1 {
		return nil, errors.New("the broker's metadata does not mention the topic")
	}
	answer := &response.Topics[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return nil, err
	}
	if len(answer.Partitions) == 0 {
		return nil, kerr.LeaderNotAvailable // seen right after a topic was created
	}
	return answer, nil
}

// merge makes the next layout. Partitions keep what we know of them as long as the topic is the same one.
func (ts *topics) merge(t *topic, known *layout, answer *kmsg.MetadataResponseTopic) *layout {
	next := &layout{topic: t, id: answer.TopicID, loaded: time.Now()}
	if known != nil && known.id == answer.TopicID {
		next.partitions = append(next.partitions, known.partitions...)
	}
	before := len(next.partitions)
	for i := range answer.Partitions {
		for index := answer.Partitions[i].Partition; index >= int32(len(next.partitions)); { //nolint:gosec // few
			next.partitions = append(next.partitions, newPartition(int32(len(next.partitions)))) //nolint:gosec // few
		}
	}
	for i := range answer.Partitions {
		p := &answer.Partitions[i]
		next.partitions[p.Partition].leader.Store(p.Leader)
	}
	next.spread = spread(len(next.partitions), ts.pin, int(t.agreed.Load()))
	if now := len(next.partitions); before != 0 && now != before && (ts.pin == 0 || ts.pin > before) {
		ts.logger.Warn("kafka: the number of partitions has changed: keys move to other partitions, and newer events "+
			"of a key can be consumed before older ones", "topic", t.name, "partitions", now, "partitions_before", before)
	}
	return next
}
