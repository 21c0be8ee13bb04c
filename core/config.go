package core

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
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
	// them the wait doubles. A store that can wake the dispatcher ends the wait early; without one the wait is at most
	// 1 s. Defaults 5 ms and 5 s.
	PollMin, PollMax time.Duration

	// LeaseTTL is how long lanes stay with this dispatcher after its last sign of life: another one takes over that
	// much after a crash. Default 15 s, at least 100 ms.
	LeaseTTL time.Duration
	// ShutdownTimeout is how long Run waits for work in flight after its context ended. Default 25 s.
	ShutdownTimeout time.Duration

	// Retry says what happens to a record whose publishing fails because of itself.
	Retry Retry
	// Outage is the wait before a destination or broker in trouble is tried again. Default 200 ms growing to 15 s.
	Outage Backoff

	// Route gives the topic of a record that was stored without one. It must be quick, pure and safe for concurrent
	// use; an error parks the record. By default the topic is the aggregate type.
	Route func(*Record) (topic string, err error)

	// Logger gets what a person should know: Info for start and stop, Warn for trouble, Error for a parked record;
	// never a payload. Default slog.Default().
	Logger *slog.Logger
	// Observer is told what happens, for metrics and traces. Default none.
	Observer Observer
}

// Retry is what happens to a record whose publishing fails because of itself.
type Retry struct {
	// MaxAttempts is after how many failed attempts the record is parked. Default 10.
	MaxAttempts int
	// Backoff is the wait between them. Default 200 ms growing to 1 min.
	Backoff Backoff
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

// Defaults of [Config].
const (
	DefaultFetchSize        = 1000
	DefaultFetchBytes       = 4 << 20
	DefaultMaxInFlightBytes = 32 << 20
	DefaultPublishSize      = 500
	DefaultPublishTimeout   = 10 * time.Second
	DefaultPollMin          = 5 * time.Millisecond
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
	c.Retry.MaxAttempts = or(c.Retry.MaxAttempts, DefaultMaxAttempts)
	c.Retry.Backoff = c.Retry.Backoff.withDefaults(200*time.Millisecond, time.Minute)
	c.Outage = c.Outage.withDefaults(200*time.Millisecond, 15*time.Second)
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

func (b Backoff) withDefaults(initial, most time.Duration) Backoff {
	b.Initial = or(b.Initial, initial)
	b.Max = or(b.Max, max(most, b.Initial))
	b.Multiplier = or(b.Multiplier, 2)
	return b
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
	require := func(ok bool, path, format string, args ...any) {
		if !ok {
			faults = append(faults, &FieldError{Path: path, Reason: fmt.Sprintf(format, args...)})
		}
	}
	atLeastOne := func(path string, value int) {
		require(value >= 1, path, "is %d, must be at least 1", value)
	}
	positive := func(path string, value time.Duration) {
		require(value > 0, path, "is %v, must be positive", value)
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
	atLeastOne("Retry.MaxAttempts", c.Retry.MaxAttempts)
	backoff := func(path string, b Backoff) {
		positive(path+".Initial", b.Initial)
		require(b.Max >= b.Initial, path+".Max", "is %v, must be at least Initial, %v", b.Max, b.Initial)
		require(b.Multiplier >= 1, path+".Multiplier", "is %v, must be at least 1", b.Multiplier)
	}
	backoff("Retry.Backoff", c.Retry.Backoff)
	backoff("Outage", c.Outage)
	return errors.Join(faults...)
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
