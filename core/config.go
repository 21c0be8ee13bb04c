package core

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"time"
)

// Config is the configuration of a [Dispatcher]. The zero value is ready to use: zero fields get their defaults, which
// are the measured best for most services.
type Config struct {
	// Name stands in logs and events and at the start of the dispatcher's member name; by default "outbox". Give each
	// outbox of a process its own.
	Name string

	// FetchSize is how many records one fetch asks for. Default 1000.
	FetchSize int
	// FetchBytes bounds the size of the records of one fetch; a single larger record is fetched all the same.
	// Default 4 MiB.
	FetchBytes int
	// MaxInFlight bounds how many records are held in memory: fetched, being published, or waiting to be settled.
	// Default 5 times FetchSize.
	MaxInFlight int
	// MaxInFlightBytes bounds their size. Default 32 MiB.
	MaxInFlightBytes int
	// PublishSize is how many records one publish call gets, if the broker allows as many. Default 500.
	PublishSize int
	// PublishTimeout is how long one publish call may take. Default 10 s.
	PublishTimeout time.Duration

	// PollMin is the wait before the next fetch while records flow, PollMax the longest wait while none do; between
	// them the wait is an eighth of the time since the last record. A store that can wake the dispatcher ends the wait
	// early; without one the wait is at most 1 s. Defaults 3 ms and 5 s.
	PollMin, PollMax time.Duration

	// LeaseTTL is how long lanes stay with this dispatcher after its last sign of life: another one takes over that
	// much after a crash. It is also how long a destination's ordering strategy is trusted before it is compared with
	// the store's again. Default 15 s, at least 100 ms.
	LeaseTTL time.Duration
	// ShutdownTimeout is how long Run waits for work in flight after its context ended. Default 25 s.
	ShutdownTimeout time.Duration

	// Retry says what happens to a record whose publishing fails because of itself.
	Retry Retry
	// TopicRetry says it for some topics: the first whose pattern matches the record's topic counts. What it leaves
	// open is as in Retry.
	TopicRetry []TopicRetry
	// Outage is the wait before a destination or broker in trouble is tried again. Default 200 ms growing to 15 s.
	Outage Backoff

	// Route gives the topic of a record that was stored without one. It must be quick, pure and safe for concurrent
	// use; an error parks the record. By default the topic is the aggregate type.
	Route func(*Record) (topic string, err error)

	// EnqueueOnly makes this a replica that leaves dispatching to others: Run is ready, waits for its context and calls
	// neither the store nor the broker; RunOnce does nothing.
	EnqueueOnly bool

	// Random is where the jitter of waits and the member's name come from; by default the system's randomness. Give one
	// only to repeat a run exactly, in a test: the goroutine of Run uses it, without a lock.
	Random rand.Source

	// Logger gets what a person should know: Info for start and stop, Warn for trouble, Error for a record that needs a
	// person; never a payload. Default slog.Default().
	Logger *slog.Logger
	// Observer is told what happens, for metrics and traces. Default none.
	Observer Observer
}

// Defaults of [Config].
const (
	DefaultFetchSize        = 1000
	DefaultFetchBytes       = 4 << 20
	DefaultMaxInFlightBytes = 32 << 20
	DefaultPublishSize      = 500
	DefaultPublishTimeout   = 10 * time.Second
	DefaultPollMin          = 3 * time.Millisecond
	DefaultPollMax          = 5 * time.Second
	DefaultLeaseTTL         = 15 * time.Second
	DefaultShutdownTimeout  = 25 * time.Second
	DefaultMaxAttempts      = 10
	inFlightFetches         = 5 // MaxInFlight in fetches
)

// WithDefaults returns a copy with defaults in place of zero fields.
func (c Config) WithDefaults() Config {
	c.Name = or(c.Name, "outbox")
	c.FetchSize = or(c.FetchSize, DefaultFetchSize)
	c.FetchBytes = or(c.FetchBytes, DefaultFetchBytes)
	c.MaxInFlight = or(c.MaxInFlight, inFlightFetches*c.FetchSize)
	c.MaxInFlightBytes = or(c.MaxInFlightBytes, DefaultMaxInFlightBytes)
	c.PublishSize = or(c.PublishSize, DefaultPublishSize)
	c.PublishTimeout = or(c.PublishTimeout, DefaultPublishTimeout)
	c.PollMin = or(c.PollMin, DefaultPollMin)
	c.PollMax = or(c.PollMax, max(DefaultPollMax, c.PollMin))
	c.LeaseTTL = or(c.LeaseTTL, DefaultLeaseTTL)
	c.ShutdownTimeout = or(c.ShutdownTimeout, DefaultShutdownTimeout)
	c.Retry = c.Retry.withDefaults(Retry{
		MaxAttempts: DefaultMaxAttempts, Backoff: Backoff{Initial: 200 * time.Millisecond, Max: time.Minute, Multiplier: 2},
		Exhausted: ExhaustedPark,
	})
	c.TopicRetry = slices.Clone(c.TopicRetry)
	for i := range c.TopicRetry {
		c.TopicRetry[i].Retry = c.TopicRetry[i].withDefaults(c.Retry)
	}
	c.Outage = c.Outage.withDefaults(Backoff{Initial: 200 * time.Millisecond, Max: 15 * time.Second, Multiplier: 2})
	if c.Route == nil {
		c.Route = func(r *Record) (string, error) { return r.AggregateType, nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	return c
}

func or[T comparable](value, byDefault T) T {
	var zero T
	if value == zero {
		return byDefault
	}
	return value
}

// Validate reports every fault of a configuration with its defaults in place: a *[FieldError] each, joined, or nil.
func (c Config) Validate() error {
	var faults []error
	require := func(ok bool, field, format string, args ...any) {
		if !ok {
			faults = append(faults, &FieldError{Path: field, Reason: fmt.Sprintf(format, args...)})
		}
	}
	atLeastOne := func(field string, value int) {
		require(value >= 1, field, "is %d, must be at least 1", value)
	}
	positive := func(field string, value time.Duration) {
		require(value > 0, field, "is %v, must be positive", value)
	}
	atLeastOne("FetchSize", c.FetchSize)
	atLeastOne("FetchBytes", c.FetchBytes)
	atLeastOne("PublishSize", c.PublishSize)
	require(c.MaxInFlight >= c.FetchSize, "MaxInFlight", "is %d, must be at least FetchSize, %d", c.MaxInFlight, c.FetchSize)
	require(c.MaxInFlightBytes >= c.FetchBytes, "MaxInFlightBytes", "is %d, must be at least FetchBytes, %d",
		c.MaxInFlightBytes, c.FetchBytes)
	positive("PublishTimeout", c.PublishTimeout)
	positive("PollMin", c.PollMin)
	require(c.PollMax >= c.PollMin, "PollMax", "is %v, must be at least PollMin, %v", c.PollMax, c.PollMin)
	require(c.LeaseTTL >= 100*time.Millisecond, "LeaseTTL", "is %v, must be at least 100ms", c.LeaseTTL)
	positive("ShutdownTimeout", c.ShutdownTimeout)
	c.Retry.validate("Retry", require)
	for i, t := range c.TopicRetry {
		field := fmt.Sprintf("TopicRetry[%d]", i)
		_, err := path.Match(t.Match, "")
		require(err == nil && t.Match != "", field+".Match", "is %q, which is not a pattern such as orders.*", t.Match)
		t.validate(field, require)
	}
	c.Outage.validate("Outage", require)
	return errors.Join(faults...)
}
