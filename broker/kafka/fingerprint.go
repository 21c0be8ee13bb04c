package kafka

import (
	"context"
	"fmt"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.Fingerprinter = (*Broker)(nil)

// Fingerprint is that of the strategy, and with [ordering.RecordKey] over all partitions of the topic their number too,
// for example "record-key/v1:murmur2 of 12 partitions": it decides which way a key takes. It asks the cluster. From the
// first call on, a topic that gets more partitions goes on with the number told last, until Fingerprint is called again.
func (b *Broker) Fingerprint(ctx context.Context, _, destination string) (string, error) {
	strategy := b.config.Strategy.Fingerprint()
	recordKey, ok := b.config.Strategy.(ordering.RecordKey)
	if !ok || recordKey.Partitions > 0 {
		return strategy, nil
	}
	ctx, leave, err := b.enter(ctx, b.config.DeliveryTimeout)
	if err != nil {
		return "", fmt.Errorf("kafka: fingerprint of topic %q: %w", destination, err)
	}
	defer leave()
	topic := b.topics.named(destination)
	layout, err := b.topics.reload(ctx, topic, topic.layout.Load())
	if err != nil {
		return "", publishError(&unsentError{fmt.Errorf("kafka: topic %q: %w", destination, err)})
	}
	topic.agree(layout)
	return fmt.Sprintf("%s of %d partitions", strategy, len(layout.partitions)), nil
}
