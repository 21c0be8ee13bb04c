package memstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-outbox/outbox/core"
)

// AfterPublish says what becomes of a row when its record is published.
type AfterPublish string

const (
	// Mark keeps the row, marked as published, so that it can be read and replayed.
	Mark AfterPublish = "mark"
	// Delete removes the row; its event id may then be enqueued again.
	Delete AfterPublish = "delete"
)

// DefaultLanes is the number of lanes of a store made without Config.Lanes.
const DefaultLanes = 64

// Op names a call of a [Store] or [Tx], for [Point].
type Op string

// The calls that [Config.Fault] can fail.
const (
	OpLease       Op = "lease"
	OpFetch       Op = "fetch"
	OpSettle      Op = "settle"
	OpEnqueue     Op = "enqueue"
	OpCommit      Op = "commit"
	OpFingerprint Op = "fingerprint"
	OpDeadLetters Op = "dead letters" // each method of core.DeadLetters
)

// Point is a moment at which [Config.Fault] is asked.
type Point struct {
	// Op is the call.
	Op Op
	// Member is the dispatcher that calls; empty unless the Op is OpLease, OpFetch or OpSettle.
	Member string
	// Done is false before the call has done anything, and true when it is done and only its answer is outstanding.
	Done bool
}

// Config is what a store is made of. The zero value is ready to use.
type Config struct {
	// Lanes is the number of lanes, fixed for the life of the store. 0 means [DefaultLanes].
	Lanes int
	// AfterPublish says what becomes of published rows. Empty means [Mark].
	AfterPublish AfterPublish
	// JSON makes the store take nil or valid JSON as a payload and nothing else, as a table with a JSON column does.
	JSON bool
	// Fault, when not nil, is called twice in every call named by an [Op], each time without a lock held. An error at
	// the first Point fails the call with nothing done. An error at the second fails it although all is done: a lost
	// answer. Fault may block; it should return when ctx ends (OpCommit has no context of its own: ctx never ends).
	// Called concurrently.
	Fault func(ctx context.Context, at Point) error
}

// WithDefaults returns a copy with the zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.Lanes == 0 {
		c.Lanes = DefaultLanes
	}
	if c.AfterPublish == "" {
		c.AfterPublish = Mark
	}
	return c
}

// Validate reports everything wrong with the configuration, a *[core.FieldError] for each fault, joined. Zero fields
// stand for their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	if c.Lanes < 1 {
		faults = append(faults, &core.FieldError{
			Path: "Lanes", Reason: fmt.Sprintf("%d is not a number of lanes; use 1 or more, or 0 for %d", c.Lanes, DefaultLanes),
		})
	}
	if c.AfterPublish != Mark && c.AfterPublish != Delete {
		faults = append(faults, &core.FieldError{
			Path: "AfterPublish", Reason: fmt.Sprintf("%q is unknown; use %q or %q", c.AfterPublish, Mark, Delete),
		})
	}
	return errors.Join(faults...)
}
