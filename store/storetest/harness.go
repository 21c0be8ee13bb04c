package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Harness describes a store to the kit: how to get at it, and facts about it. The facts are checked both ways: what is
// claimed must hold, what is not claimed must be refused as the contract says.
type Harness struct {
	// Tables makes tables that are empty, migrated and seen by nobody else. Called once by each case, from parallel
	// tests; it registers its own t.Cleanup. Required.
	Tables func(t testing.TB) Tables
	// Unmigrated makes a place where the tables are still missing. Nil skips the cases about that.
	Unmigrated func(t testing.TB) Tables

	// Lanes is how many lanes the tables have. Required, 1 or more; with 1 the cases about several lanes are skipped.
	Lanes int
	// OneWriter says that a second transaction cannot enqueue while the first is open, as in SQLite.
	OneWriter bool
	// JSONOnly says that a payload is nil or valid JSON, and comes back as JSON of the same meaning.
	JSONOnly bool
	// DeletesPublished says that a published row is gone. Otherwise it is kept, so that its event id stays known.
	DeletesPublished bool
	// Waker says that the store is a [core.Waker].
	Waker bool
	// Migrator says that the store is a [core.Migrator].
	Migrator bool

	// FingerprintKeeper says that the store is a [core.FingerprintKeeper].
	FingerprintKeeper bool
	// DeadLetters says that the store is a [core.DeadLetters].
	DeadLetters bool

	// Patience is how long a case waits for what must come, before it fails. 0 means 10 s.
	Patience time.Duration
}

// Tables is one set of tables, and what the kit does to them. All functions but Expire and Purge are required; they may
// be called from several goroutines, those with a testing.TB from the test's own only.
type Tables struct {
	// Store opens a handle on the tables, as a process of its own would: with its own memory of what was fetched. It
	// is closed by t.Cleanup; the kit may close it before.
	Store func(t testing.TB) core.Store
	// Begin begins a transaction.
	Begin func(ctx context.Context) (Tx, error)
	// Row reads a committed row, past the store. False means that there is none.
	Row func(t testing.TB, eventID string) (Row, bool)
	// Requeue does what a person's requeue or replay does, in whatever state the rows are: unsettled again, without
	// attempts and waiting, Replay one higher, and the owner of the lane will be told (LaneBatch.Rewound).
	Requeue func(t testing.TB, eventIDs ...string)
	// Delete deletes rows, as a person may by SQL.
	Delete func(t testing.TB, eventIDs ...string)
	// Expire makes a member's membership and leases end now, as if it had been silent for its TTL. Nil makes the cases
	// use a TTL of 300 ms and wait.
	Expire func(t testing.TB, member string)
	// Purge deletes the rows that are published or discarded, however young. Nil skips the cases about that.
	Purge func(ctx context.Context) error
}

// Tx is a transaction with the store's Enqueuer for it.
type Tx struct {
	core.Enqueuer
	// Commit and Rollback end the transaction. Rollback after the end is harmless; its error is ignored then.
	Commit, Rollback func() error
}

// State is where a row stands.
type State string

const (
	// Pending: neither published nor parked nor blocked.
	Pending State = "pending"
	// Published: the broker has it.
	Published State = "published"
	// Parked: in the dead-letter state.
	Parked State = "parked"
	// Blocked: neither published nor parked, and not due before a person acts.
	Blocked State = "blocked"
	// Discarded: parked, and a person decided that it is not sent. Only of a [core.DeadLetters].
	Discarded State = "discarded"
)

// Row is what the kit reads of a row.
type Row struct {
	State State
	// Attempts is the row's attempt count.
	Attempts int
	// Reason is the error text kept with it.
	Reason string
}

// defaultPatience is long enough for a container on a busy machine.
const defaultPatience = 10 * time.Second

func (h Harness) withDefaults() Harness {
	if h.Patience == 0 {
		h.Patience = defaultPatience
	}
	return h
}

func (h Harness) validate() error {
	var faults []error
	if h.Tables == nil {
		faults = append(faults, &core.FieldError{Path: "Harness.Tables", Reason: "is required"})
	}
	if h.Lanes < 1 {
		faults = append(faults, &core.FieldError{Path: "Harness.Lanes", Reason: "is required: 1 or more"})
	}
	if h.Migrator && h.Unmigrated == nil {
		faults = append(faults, &core.FieldError{
			Path: "Harness.Unmigrated", Reason: "is required for a Migrator: where else would it migrate",
		})
	}
	return errors.Join(faults...)
}

func (tb Tables) validate() error {
	var faults []error
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"Store", tb.Store == nil},
		{"Begin", tb.Begin == nil},
		{"Row", tb.Row == nil},
		{"Requeue", tb.Requeue == nil},
		{"Delete", tb.Delete == nil},
	} {
		if field.missing {
			faults = append(faults, &core.FieldError{Path: "Tables." + field.name, Reason: "is required"})
		}
	}
	return errors.Join(faults...)
}
