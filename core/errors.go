package core

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

var (
	// ErrClosed is wrapped by errors of a Store or Broker after Close.
	ErrClosed = errors.New("closed")
	// ErrNotMigrated is wrapped by errors of a Store whose tables are missing or too old: run its migrations.
	ErrNotMigrated = errors.New("the outbox tables are missing or out of date: run the migrations")
	// ErrNoTransaction is wrapped when a message is enqueued without a transaction. An event outside the transaction
	// of its data could be published for a change that never happened, so there is no autocommit form.
	ErrNoTransaction = errors.New("no transaction")
	// ErrRunning is returned by Run and RunOnce while the dispatcher runs already.
	ErrRunning = errors.New("dispatcher: already running")
	// ErrShutdownTimeout is returned by Run when work in flight did not end within Config.ShutdownTimeout. What was in
	// flight is fetched again by the next owner of its lanes.
	ErrShutdownTimeout = errors.New("dispatcher: shutdown timeout passed with work in flight")
)

// InvalidMessageError is one fault of one message given to Enqueue.
type InvalidMessageError struct {
	// Index is the position of the message in the call.
	Index int
	// EventID is the id of the message, made printable.
	EventID string
	// Field is the field of Message, for example `Headers["tenant"]`.
	Field string
	// Reason says what is wrong with it.
	Reason string
}

func (e *InvalidMessageError) Error() string {
	return fmt.Sprintf("message %d (event id %q): %s %s", e.Index, e.EventID, e.Field, e.Reason)
}

// EventConflictError says that an event id was enqueued before for another key or event type.
type EventConflictError struct {
	EventID string
}

func (e *EventConflictError) Error() string {
	return fmt.Sprintf("event id %q is already in the outbox with another topic, aggregate or event type", e.EventID)
}

// FieldError is one fault of a configuration.
type FieldError struct {
	// Path is the field, for example "Retry.MaxAttempts".
	Path string
	// Reason says what is wrong and what would be right.
	Reason string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Reason }

// Class says what kind of trouble a publish error is, and so what helps.
type Class uint8

const (
	// ClassTransient: trying again later may work.
	ClassTransient Class = iota
	// ClassThrottled: the broker asks for a slower pace.
	ClassThrottled
	// ClassUnavailable: the broker or destination cannot be reached.
	ClassUnavailable
	// ClassMisconfigured: it cannot work before a person acts (missing topic, missing right, wrong credentials).
	ClassMisconfigured
	// ClassPermanent: this message can never be accepted.
	ClassPermanent
)

// String returns the class in lower case, for example "misconfigured".
func (c Class) String() string {
	switch c {
	case ClassThrottled:
		return "throttled"
	case ClassUnavailable:
		return "unavailable"
	case ClassMisconfigured:
		return "misconfigured"
	case ClassPermanent:
		return "permanent"
	default:
		return "transient"
	}
}

// Scope says what a publish error is about. Only errors of a message spend its attempts; trouble of a destination or
// a broker pauses that, and costs no message anything.
type Scope uint8

const (
	// ScopeMessage: this message alone.
	ScopeMessage Scope = iota
	// ScopeKey: the messages of its key.
	ScopeKey
	// ScopeDestination: everything that goes to its destination.
	ScopeDestination
	// ScopeBroker: everything that goes to the broker.
	ScopeBroker
)

// String returns the scope in lower case, for example "destination".
func (s Scope) String() string {
	switch s {
	case ScopeKey:
		return "key"
	case ScopeDestination:
		return "destination"
	case ScopeBroker:
		return "broker"
	default:
		return "message"
	}
}

// PublishError is a broker's error with what the dispatcher needs to know about it. Adapters put one into every
// Result.Err; the SDK's own error stays reachable through Unwrap.
type PublishError struct {
	Class Class
	Scope Scope
	// Code is the broker's short name for the error, for example "MESSAGE_TOO_LARGE"; it becomes a metric label, so it
	// comes from a small set.
	Code string
	// RetryAfter is how long the broker asks to wait; 0 means not said.
	RetryAfter time.Duration
	Err        error
}

func (e *PublishError) Error() string {
	if e.Err == nil {
		return e.Code
	}
	if e.Code == "" {
		return e.Err.Error()
	}
	return e.Code + ": " + e.Err.Error()
}

// Unwrap returns the SDK's error.
func (e *PublishError) Unwrap() error { return e.Err }

// maxReasonBytes bounds the error text kept with a row: enough to act on, too little to bloat the table.
const maxReasonBytes = 2000

// reason is the error's text as it is kept with a row: valid UTF-8, no NUL, bounded.
func reason(err error) string {
	return cutText(storable(err.Error()), maxReasonBytes)
}

// storable is a text that every database takes: valid UTF-8 without NUL.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
}

// cutText bounds a valid text, and says so at its end.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const mark = " [cut]"
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

// printable returns a short form of a string that came from outside, for error texts.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "..."
	}
	return s
}
