package core

import (
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"time"
)

// Retry is what happens to a record whose publishing fails because of itself.
type Retry struct {
	// MaxAttempts is after how many failed attempts the record is exhausted. One that the broker can never accept is
	// exhausted at once. Default 10.
	MaxAttempts int
	// Backoff is the wait between them. Default 200 ms growing to 1 min.
	Backoff Backoff
	// Exhausted says what becomes of the record then. Default ExhaustedPark.
	Exhausted Exhausted
	// DeadLetterSuffix, when not empty, has a copy of a record published before it is parked, to its topic with this
	// suffix, for example ".dlq": with the original headers, and the headers HeaderDead... beside them. While the copy
	// does not go through, the record is not parked: it is tried again, and its key waits.
	DeadLetterSuffix string
}

// TopicRetry is [Retry] for the topics that match a pattern.
type TopicRetry struct {
	// Match is a pattern of topics: * stands for any characters but a slash, ? for one of them, [a-z] for one of a
	// range (the rules of [path.Match]).
	Match string
	Retry
}

// Exhausted is what becomes of a record after its last attempt.
type Exhausted string

const (
	// ExhaustedPark: it leaves the order, goes to the dead-letter state with its reason, and its key goes on.
	ExhaustedPark Exhausted = "park"
	// ExhaustedBlock: it keeps its place and its key waits for a person; see [DeadLetters]. Other keys go on.
	ExhaustedBlock Exhausted = "block"
	// ExhaustedHalt: like block, and the dispatcher publishes nothing more to the destination of its topic and is not
	// ready, until a person has acted. Other dispatchers go on with the lanes that they hold.
	ExhaustedHalt Exhausted = "halt"
)

func (r Retry) withDefaults(d Retry) Retry {
	r.MaxAttempts = or(r.MaxAttempts, d.MaxAttempts)
	r.Backoff = r.Backoff.withDefaults(d.Backoff)
	r.Exhausted = or(r.Exhausted, d.Exhausted)
	r.DeadLetterSuffix = or(r.DeadLetterSuffix, d.DeadLetterSuffix)
	return r
}

// require notes a fault unless ok.
type require func(ok bool, field, format string, args ...any)

func (r Retry) validate(field string, require require) {
	require(r.MaxAttempts >= 1, field+".MaxAttempts", "is %d, must be at least 1", r.MaxAttempts)
	r.Backoff.validate(field+".Backoff", require)
	known := []Exhausted{ExhaustedPark, ExhaustedBlock, ExhaustedHalt}
	require(slices.Contains(known, r.Exhausted), field+".Exhausted", "is %q, must be one of %q", r.Exhausted, known)
}

// halts reports whether some topics are halted.
func (c Config) halts() bool {
	return c.Retry.Exhausted == ExhaustedHalt ||
		slices.ContainsFunc(c.TopicRetry, func(t TopicRetry) bool { return t.Exhausted == ExhaustedHalt })
}

// retryOf returns what counts for the records of a topic.
func (c Config) retryOf(topic string) Retry {
	for _, t := range c.TopicRetry {
		if ok, err := path.Match(t.Match, topic); ok && err == nil {
			return t.Retry
		}
	}
	return c.Retry
}

// Backoff is a wait that grows with each failure, with full jitter: the wait is a random part of the ceiling.
type Backoff struct {
	// Initial is the ceiling after the first failure.
	Initial time.Duration
	// Max is the highest ceiling.
	Max time.Duration
	// Multiplier is by how much the ceiling grows each time; at least 1. Default 2.
	Multiplier float64
}

func (b Backoff) withDefaults(d Backoff) Backoff {
	b.Initial = or(b.Initial, d.Initial)
	b.Max = or(b.Max, max(d.Max, b.Initial))
	b.Multiplier = or(b.Multiplier, d.Multiplier)
	return b
}

func (b Backoff) validate(field string, require require) {
	require(b.Initial > 0, field+".Initial", "is %v, must be positive", b.Initial)
	require(b.Max >= b.Initial, field+".Max", "is %v, must be at least Initial, %v", b.Max, b.Initial)
	require(b.Multiplier >= 1, field+".Multiplier", "is %v, must be at least 1", b.Multiplier)
}

// Ceiling is the longest wait after so many failures in a row (1 or more): Initial, growing by Multiplier, never above
// Max, for any number of failures.
func (b Backoff) Ceiling(failures int) time.Duration {
	ceiling := float64(b.Initial) * math.Pow(b.Multiplier, float64(max(failures, 1)-1))
	if !(ceiling < float64(b.Max)) { // also when it has overflowed, or is not a number
		return b.Max
	}
	return time.Duration(ceiling)
}

// Delay is a random wait above zero and up to the ceiling: replicas that fail together do not come back together.
func (b Backoff) Delay(failures int) time.Duration {
	ceiling := b.Ceiling(failures)
	if ceiling <= 0 {
		return 0
	}
	return 1 + rand.N(ceiling) //nolint:gosec // spreading load needs no secret
}
