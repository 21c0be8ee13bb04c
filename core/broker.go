package core

import "context"

// Broker is a message system as a [Dispatcher] sees it. Outsiders implement it: run broker/brokertest.
//
// All methods are safe for concurrent use. The dispatcher does the retrying, the backoff and the ordering; a Broker
// tries once (retries inside its client are fine as long as they end with the call) and tells exactly what happened to
// each message. What only some brokers can do are interfaces of their own, found by type assertion: [Topology].
type Broker interface {
	// Capabilities says what the dispatcher may rely on. Constant for the life of the Broker.
	Capabilities() Capabilities

	// Prepare checks and encodes one record. It is pure: no I/O, and what can never be accepted (size, characters,
	// reserved names, header count) fails here, so that it cannot hurt its neighbours in a batch. An error is taken as
	// permanent for this message unless errors.As finds a *[PublishError] that says otherwise; it names the limit or
	// the rule that failed.
	Prepare(r *Record) (Prepared, error)

	// PublishBatch sends messages of one Destination of one Broker and returns one Result for each, in the same order; a batch is
	// never empty and never larger than Capabilities allow. Messages of one key are in the order they must be stored
	// in. Calls run at the same time only for disjoint keys.
	//
	// It returns soon after ctx ends, with OutcomeUnknown for what is not known. Nothing of a batch is written later
	// than the return of the next call that contains the same key; what cannot be recalled must be torn down first.
	// The broker does not touch the batch after it has returned.
	PublishBatch(ctx context.Context, batch []Prepared) []Result

	// Check tells whether the broker can be reached and accepts our credentials. Cheap, without side effects.
	Check(ctx context.Context) error

	// Close ends the connections that Open made, after waiting for calls in progress until ctx ends; a Broker made
	// from a caller's client leaves that open. Calls after Close give OutcomeRejected with an error that wraps
	// [ErrClosed]. Close twice is no error.
	Close(ctx context.Context) error
}

// KeyGuarantee says what a partial failure within one PublishBatch can do to the order of one key.
type KeyGuarantee uint8

const (
	// OnePerKey promises nothing: the dispatcher puts at most one message of a key into a call.
	OnePerKey KeyGuarantee = iota
	// PrefixPerKey promises that what was stored of a key is a prefix: if a message was not delivered, no later
	// message of that key in the call was stored.
	PrefixPerKey
)

// Capabilities is what a [Broker] promises and limits. Zero values are the careful ones.
type Capabilities struct {
	// KeyGuarantee is what the dispatcher may put into one call.
	KeyGuarantee KeyGuarantee
	// MaxBatch bounds the messages of one PublishBatch; 0 means no limit of the broker's.
	MaxBatch int
	// MaxBatchBytes bounds the sum of Prepared.Bytes of one PublishBatch; 0 means no limit of the broker's.
	MaxBatchBytes int
	// MaxInFlight bounds the PublishBatch calls at the same time; 0 means 1.
	MaxInFlight int
}

// Prepared is a record ready to be sent.
type Prepared struct {
	// Record is the record it was made of.
	Record *Record
	// Broker names the broker it goes to, for a [Multi]; empty for every other Broker.
	Broker string
	// Destination is where it goes there, as the ordering strategy decided: equal for all records of one topic.
	Destination string
	// Bytes is the size on the wire, as far as limits count it.
	Bytes int
	// Native is the broker's own form of the message. The dispatcher never looks at it.
	Native any
}

// Outcome is what is known of one message after a call.
type Outcome uint8

const (
	// OutcomeUnknown: it may or may not be stored; trying again may repeat it. The zero value, so that a forgotten
	// result is never taken for a success.
	OutcomeUnknown Outcome = iota
	// OutcomeDelivered: stored, as durably as the broker is configured to promise.
	OutcomeDelivered
	// OutcomeRejected: certainly not stored.
	OutcomeRejected
	// OutcomeSkipped: certainly not stored, because it was not tried: an earlier message of its key failed, or ctx
	// ended.
	OutcomeSkipped
)

// String returns "unknown", "delivered", "rejected" or "skipped".
func (o Outcome) String() string {
	switch o {
	case OutcomeDelivered:
		return "delivered"
	case OutcomeRejected:
		return "rejected"
	case OutcomeSkipped:
		return "skipped"
	default:
		return "unknown"
	}
}

// Result tells what became of one message.
type Result struct {
	Outcome Outcome
	// Err is nil exactly when the outcome is OutcomeDelivered. errors.As finds a *[PublishError] in it; without one it
	// counts as transient trouble of the message.
	Err error
}

// Multi is a [Broker] made of several: each has its own capabilities, its own calls, and its own outages.
type Multi interface {
	Broker
	// CapabilitiesOf returns the capabilities of the broker that Prepared.Broker names. Constant.
	CapabilitiesOf(broker string) Capabilities
}

// Fingerprinter is a [Broker] that can say by which ordering strategy it publishes a destination; see
// [FingerprintKeeper].
type Fingerprinter interface {
	// Fingerprint names everything that decides which way a key takes at the destination: the strategy's fingerprint,
	// and what the destination itself adds to it, such as a number of partitions. It may ask the broker; an error is
	// handled like one of PublishBatch. The broker name is empty unless there are several.
	Fingerprint(ctx context.Context, broker, destination string) (string, error)
}

// Adopter is a [Fingerprinter] that can go over to another strategy while it runs, because the store remembers another
// one: that is how a change of strategy reaches every dispatcher at once, without a restart.
type Adopter interface {
	Fingerprinter
	// Adopt makes the destination use the strategy of the fingerprint, from the next Prepare on. It returns false when
	// that is not one the Broker can go over to, and changes nothing then. The dispatcher calls it while nothing is
	// published to the destination, and prepares every record for it anew afterwards.
	Adopt(ctx context.Context, broker, destination, fingerprint string) (bool, error)
}

// Topology is a [Broker] that can make and check what its topics need at the broker. Never called by the dispatcher
// on its own account: people call it, or their deployment.
type Topology interface {
	// Declare makes what is missing for the topics; it changes nothing that is there.
	Declare(ctx context.Context, topics ...string) error
	// Verify reports every topic that is missing or not as the ordering strategy needs it.
	Verify(ctx context.Context, topics ...string) error
}
