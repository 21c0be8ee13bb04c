package core

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// Forever is the [Record].Delay of a blocked record: it is not due before a person acts.
const Forever time.Duration = math.MaxInt64

// DeadLetterState says how an event that needs a person stands in the table.
type DeadLetterState string

const (
	// StateParked: taken out of the order with its reason; its key has gone on without it.
	StateParked DeadLetterState = "parked"
	// StateBlocked: it keeps its place at the head of its key, which waits for a person.
	StateBlocked DeadLetterState = "blocked"
	// StateDiscarded: a person decided that it is not sent. It goes with the next purge.
	StateDiscarded DeadLetterState = "discarded"
)

// DeadLetter is an event that needs a person, or that one decided about.
type DeadLetter struct {
	Record *Record
	State  DeadLetterState
	// Reason is the error text kept with the row; of a discarded one, why it was discarded, and then the error.
	Reason string
	// Since is when the row came into its state; the zero time for a store that does not keep it.
	Since time.Time
}

// DeadLetterFilter selects dead letters: those that every field which is set applies to. The zero value selects all
// that are parked.
type DeadLetterFilter struct {
	// State is the state to look for; empty means parked.
	State DeadLetterState
	// EventIDs names events.
	EventIDs []string
	// Topic, AggregateType, AggregateID and EventType are compared for equality. Topic is the one stored, empty for
	// events that configuration routes, so it cannot select those.
	Topic, AggregateType, AggregateID, EventType string
	// Reason is a part of the reason, upper and lower case alike.
	Reason string
	// CreatedAfter and CreatedBefore bound when the event was enqueued: from the first, up to but without the second.
	CreatedAfter, CreatedBefore time.Time
}

// Validate reports a State that there is not, as a *[FieldError].
func (f DeadLetterFilter) Validate() error {
	switch f.State {
	case "", StateParked, StateBlocked, StateDiscarded:
		return nil
	default:
		return &FieldError{Path: "State", Reason: fmt.Sprintf("unknown %q; use %s, %s or %s",
			printable(string(f.State)), StateParked, StateBlocked, StateDiscarded)}
	}
}

// ValidateDiscard is Validate for [DeadLetters].DiscardDead, which takes parked events only.
func (f DeadLetterFilter) ValidateDiscard() error {
	if err := f.Validate(); err != nil {
		return err
	}
	if state := cmp.Or(f.State, StateParked); state != StateParked {
		return &FieldError{Path: "State", Reason: fmt.Sprintf("%s events cannot be discarded, only %s ones", state, StateParked)}
	}
	return nil
}

// Matches reports whether the filter selects a dead letter, for stores that do not ask a database.
func (f DeadLetterFilter) Matches(dead DeadLetter) bool {
	r := dead.Record
	is := func(want, got string) bool { return want == "" || want == got }
	return dead.State == cmp.Or(f.State, StateParked) &&
		(len(f.EventIDs) == 0 || slices.Contains(f.EventIDs, r.EventID)) &&
		is(f.Topic, r.Topic) && is(f.AggregateType, r.AggregateType) &&
		is(f.AggregateID, r.AggregateID) && is(f.EventType, r.EventType) &&
		strings.Contains(strings.ToLower(dead.Reason), strings.ToLower(f.Reason)) &&
		(f.CreatedAfter.IsZero() || !r.CreatedAt.Before(f.CreatedAfter)) &&
		(f.CreatedBefore.IsZero() || r.CreatedAt.Before(f.CreatedBefore))
}

// DiscardReason returns what a store keeps with an event that a person discarded: "discarded: " and why. The error that
// the row has follows behind "; ". Of why there are at most 500 bytes, valid UTF-8 without NUL; an empty one is a
// *[FieldError].
func DiscardReason(why string) (string, error) { return decisionReason("discarded", why) }

// SkipReason is [DiscardReason] for a head that a person skipped: "skipped: " and why.
func SkipReason(why string) (string, error) { return decisionReason("skipped", why) }

// maxWhyBytes bounds what a person gives as a reason; the error that it is put before is bounded already.
const maxWhyBytes = 500

func decisionReason(decision, why string) (string, error) {
	why = storable(strings.TrimSpace(why))
	if why == "" {
		return "", &FieldError{Path: "reason", Reason: "is empty; say why"}
	}
	return decision + ": " + cutText(why, maxWhyBytes), nil
}

// DeadLetters is a [Store] whose dead letters people can look at and decide about. Every method may be called at any
// time, by any process, while dispatchers run: the dispatcher that owns the lane is told ([LaneBatch].Rewound). Those
// that change rows work through them by ascending id in bounded transactions, so that the order within each key is
// kept; they return how many rows they changed, also together with an error, and can be repeated.
type DeadLetters interface {
	// ListDead returns at most limit (at least 1) dead letters with an id above after, by id: page with the last id.
	ListDead(ctx context.Context, filter DeadLetterFilter, after int64, limit int) ([]DeadLetter, error)
	// CountDead returns how many there are.
	CountDead(ctx context.Context, filter DeadLetterFilter) (int, error)
	// RequeueDead makes them unpublished again, whatever their state in the filter: with no attempts and a replay count
	// one higher, at the place of their id. Events of their key that were published meanwhile are not sent again.
	RequeueDead(ctx context.Context, filter DeadLetterFilter) (int, error)
	// DiscardDead decides that parked events are not sent. They stay, marked and with the reason, until the next purge,
	// and RequeueDead brings them back. The filter's state must be parked (or empty) and the reason not empty.
	DiscardDead(ctx context.Context, filter DeadLetterFilter, reason string) (int, error)
	// Unblock lets a blocked key try its head again, with no attempts charged. It returns 0 when the key is not blocked.
	Unblock(ctx context.Context, key ordering.Key) (int, error)
	// SkipHead parks the head of a key that is blocked or waits for its next attempt, with the reason, so that the key
	// goes on without it. It returns 0 when no head of the key failed. The reason must not be empty.
	SkipHead(ctx context.Context, key ordering.Key, reason string) (int, error)
}
