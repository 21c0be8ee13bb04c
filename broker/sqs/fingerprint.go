package sqs

import (
	"context"

	"github.com/go-outbox/outbox/core"
)

var _ core.Fingerprinter = (*Broker)(nil)

// Fingerprint is that of the strategy and the kind of the queue, which decides whether message groups mean anything:
// for example "message-group/v1 of a FIFO queue" or "none/v1 of a standard queue". It asks nobody.
func (b *Broker) Fingerprint(_ context.Context, _, destination string) (string, error) {
	kind := "a standard queue"
	if isFIFO(destination) {
		kind = "a FIFO queue"
	}
	return b.config.Strategy.Fingerprint() + " of " + kind, nil
}
