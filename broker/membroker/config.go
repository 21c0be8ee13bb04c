package membroker

import (
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// DefaultMaxMessageBytes is the limit of one message unless Config.MaxMessageBytes says otherwise: 1 MiB.
const DefaultMaxMessageBytes = 1 << 20

// Config configures a [Broker]. The zero value is ready to use, and no value is invalid.
type Config struct {
	// Server holds the logs; brokers with the same Server see the same topics. Nil means one of its own on which every
	// topic exists.
	Server *Server
	// Strategy maps topics and keys to destinations and tokens. Nil means [ordering.RecordKey].
	Strategy ordering.Strategy
	// KeyGuarantee is what a failure within a call does to the rest of its key. [core.PrefixPerKey] stores nothing of a
	// key after a message that was not delivered; the zero value, [core.OnePerKey], stores the rest all the same.
	KeyGuarantee core.KeyGuarantee
	// MaxBatch bounds the messages of a call; 0 or less means no limit.
	MaxBatch int
	// MaxBatchBytes bounds the bytes of a call; 0 or less means no limit.
	MaxBatchBytes int
	// MaxInFlight bounds the calls at the same time; 0 or less means 1.
	MaxInFlight int
	// MaxMessageBytes bounds [core.Record.Size] of one record, checked by Prepare. 0 means DefaultMaxMessageBytes,
	// less than 0 means no limit.
	MaxMessageBytes int
	// Discard stores nothing and counts only ([Broker].Count): for benchmarks of what is in front of the broker.
	// Misuse is not looked for either.
	Discard bool
	// Script decides what happens to each call. Nil delivers everything at once. [Broker].SetScript replaces it.
	Script Script
}

// WithDefaults returns a copy in which every default is spelled out.
func (c Config) WithDefaults() Config {
	if c.Server == nil {
		c.Server = NewServer()
	}
	if c.Strategy == nil {
		c.Strategy = ordering.RecordKey{}
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = DefaultMaxMessageBytes
	}
	c.MaxBatch = max(c.MaxBatch, 0)
	c.MaxBatchBytes = max(c.MaxBatchBytes, 0)
	c.MaxInFlight = max(c.MaxInFlight, 1)
	return c
}
