package core

import (
	"context"
	"math"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// Store is the outbox table as a [Dispatcher] sees it. Outsiders implement it: run store/storetest.
//
// One Store value serves one or more dispatchers and enqueuers in a process; any number of processes share the table.
// A dispatcher calls Lease, Fetch and Settle from different goroutines at the same time, but never two Fetch calls at
// once for one lane. Every method returns soon after ctx ends. An error means that nothing is known of the outcome:
// the dispatcher waits and calls again with the same or a newer request, so every method can be repeated without harm.
// Stores do not retry by themselves beyond what their driver does within one call. Errors wrap [ErrNotMigrated] when
// the tables are missing and [ErrClosed] after Close; all other errors are taken to be passing.
//
// The methods take a request struct and return a result struct so that the contract can grow. What only some stores
// can do are interfaces of their own, found by type assertion: [Waker], [Migrator], [DeadLetters], [FingerprintKeeper].
type Store interface {
	// Lease is how replicas share the table. In one step it makes Member known for another TTL; gives back the leases
	// in Release that Member still holds; takes the lanes in Want that have no owner or whose lease has expired, each
	// with an epoch one higher than the last; and extends all leases that Member holds. A lane whose owner is another
	// member with an unexpired lease is never taken. A lease that expired but that nobody took is extended under its
	// old epoch. With Leave, Member gives everything back and is forgotten at once.
	//
	// All times are the store's own clock: callers never send one.
	Lease(ctx context.Context, req LeaseRequest) (Leases, error)

	// Fetch returns committed, unsettled records of the lanes asked for, by ascending id within a lane. It never
	// blocks waiting for records.
	//
	// The rule that everything rests on: Fetch never returns a record while an earlier committed, unsettled record of
	// its key is neither returned before it nor held by this dispatcher (named in Held, or covered by Closed).
	// Transactions commit in another order than they draw ids, so a late commit may have to be returned although
	// higher ids of other keys were returned before.
	//
	// Under one lease (lane and epoch) a record is returned once; it is returned again only from RewindFrom on. So the
	// Store remembers for each lane how far it got, forgets that with the lease, and starts at the beginning with every
	// other epoch. (The dispatcher lets go of records that it cannot publish for the time being, without telling; they
	// must not come back with every fetch and crowd out the rest.) When a reply is cut within late commits, the Store
	// goes back to the cut, and what is above it is returned once more as far as it is not held.
	//
	// A lease that has expired but that nobody took is still the current one, for Fetch and for Settle.
	Fetch(ctx context.Context, req FetchRequest) (Batch, error)

	// Settle writes the results of records in one transaction, fenced: items of a lane whose lease (member and epoch)
	// is no longer the current one are not written, and the lane is named in Settled.Refused. The fence locks: once
	// Settle has checked a lease, nobody else takes that lane before the transaction ends.
	//
	// An item applies to the row with the record's ID, EventID and Replay that is not settled yet; where there is no
	// such row (deleted, replayed, drawn again after a failover) nothing is written and the record is in
	// Settled.Missed. A repeat of a Settle that was already written changes nothing: Published stays published, and
	// Attempts is an absolute value.
	Settle(ctx context.Context, req Settlement) (Settled, error)

	// Close releases what Open made; a Store made from a caller's pool leaves that open. Calls in progress may fail,
	// later ones return ErrClosed. Close twice is no error.
	Close() error
}

// Lease is a member's right to a lane until it expires. The epoch fences: it grows by one whenever the lane changes
// hands, and a write under an older one is refused.
type Lease struct {
	Lane  int
	Epoch int64
}

// LeaseRequest is the argument of [Store].Lease.
type LeaseRequest struct {
	// Member is the random name of one dispatcher run; never used again by another run.
	Member string
	// TTL is how long the membership and the leases last from now.
	TTL time.Duration
	// Want are the lanes to take if they are free or expired.
	Want []int
	// Release are the leases to give back before anything else; those no longer held are ignored.
	Release []Lease
	// Leave gives everything back and forgets the member. Want is ignored then.
	Leave bool
}

// Leases is the result of [Store].Lease.
type Leases struct {
	// Lanes is how many lanes the table has: 1 or more, fixed when the table was created.
	Lanes int
	// Members are all live members, Member among them unless it left.
	Members []string
	// Held are the leases of Member after the call, by lane.
	Held []Lease
	// NextExpiry is how long it takes until the first membership or lease of somebody else expires, so that the
	// dispatcher can ask again right then; 0 means not known.
	NextExpiry time.Duration
}

// FetchRequest is the argument of [Store].Fetch.
type FetchRequest struct {
	// Member is the dispatcher's name as in Lease.
	Member string
	// Lanes are the lanes to read; at least one, each at most once.
	Lanes []LaneFetch
	// MaxRecords bounds the records of the whole reply, heads not counted; at least 1.
	MaxRecords int
	// MaxBytes bounds the sum of their Size; the first record is returned however large it is. At least 1.
	MaxBytes int
}

// LaneFetch is the part of a [FetchRequest] for one lane.
type LaneFetch struct {
	Lease
	// RewindFrom, when not 0, asks for everything from this id on to be returned again (as far as it is unsettled and
	// not held): the dispatcher dropped something from there on. It is repeated until a Fetch succeeds.
	RewindFrom int64
	// Held are the ids, ascending, that this dispatcher holds: in flight or waiting for their settle. They are not
	// returned.
	Held []int64
	// Closed are keys that wait for their head. A store must not let their records fill the reply; it leaves out the
	// records of a closed key whenever the key's Head is at or below the After of the reply, and only then.
	Closed []ClosedKey
	// Heads are records to be read again by primary key, whatever Held and Closed say.
	Heads []RecordRef
}

// ClosedKey is a key whose first unsettled record, the head, failed or waits: see [LaneFetch].
type ClosedKey = ordering.ClosedKey

// RecordRef names a record beyond doubt: an id alone can be drawn again after a failover.
type RecordRef = ordering.Ref

// EverythingAbove is the UpTo of a reply that was not cut.
const EverythingAbove = math.MaxInt64

// Batch is the result of [Store].Fetch.
type Batch struct {
	// Lanes has one element for each lane of the request, in that order.
	Lanes []LaneBatch
}

// LaneBatch is the part of a [Batch] for one lane.
type LaneBatch struct {
	// Refused says that the lease is no longer Member's: nothing was read, the lane is lost.
	Refused bool
	// Reset says that what was fetched before is void, because the server was replaced by another state of the data
	// (restart after a crash, failover, restore). Records and Heads are empty, and the store has forgotten its
	// position; the dispatcher drops everything it holds of the lane.
	Reset bool
	// After and UpTo say what the reply covers: every committed, unsettled record with After < ID <= UpTo that was
	// neither held nor left out for a closed key is in Records. UpTo is EverythingAbove unless MaxRecords or MaxBytes
	// cut the reply. Records at or below After may be there too: late commits.
	After, UpTo int64
	// Records are the records by ascending id.
	Records []*Record
	// Heads are those of LaneFetch.Heads that still exist unsettled, in any order.
	Heads []*Record
	// Parked are dead letters that the store has made itself, under the lease: rows that no message can be made of, whose
	// headers cannot be read for example. They are in no other list; the dispatcher tells of them.
	Parked []DeadLetter
	// Rewound are ids that were made unsettled again (requeue, replay) since the last reply. The store need not rewind
	// itself: the dispatcher asks for each of them again, for one that it holds as soon as it lets go of it. A store
	// that may have lost such a list names every id in Held and starts the lane anew.
	Rewound []int64
}

// Status is what becomes of a record in [Store].Settle.
type Status uint8

const (
	// StatusPublished: the broker has it. The row is marked, archived or deleted, as the store is configured.
	StatusPublished Status = iota + 1
	// StatusFailed: the attempt was charged; the row stays unsettled and is due again after RetryIn.
	StatusFailed
	// StatusParked: the row goes to the dead-letter state with its reason, and its key goes on without it.
	StatusParked
	// StatusBlocked: the attempt was charged; the row stays unsettled at the head of its key and is due never (Fetch
	// returns it with a Delay of [Forever]), until a person acts ([DeadLetters]).
	StatusBlocked
)

// String returns "published", "failed", "parked" or "blocked".
func (s Status) String() string {
	switch s {
	case StatusPublished:
		return "published"
	case StatusFailed:
		return "failed"
	case StatusParked:
		return "parked"
	case StatusBlocked:
		return "blocked"
	default:
		return "invalid"
	}
}

// Settlement is the argument of [Store].Settle.
type Settlement struct {
	// Member is the dispatcher's name as in Lease.
	Member string
	// Leases are the leases of all lanes in Items, each once.
	Leases []Lease
	// Items are the results, in any order, each record once.
	Items []SettleItem
}

// SettleItem is the result of one record.
type SettleItem struct {
	Record *Record
	Status Status
	// Attempts is the new value of the row's attempt count, for all but Published.
	Attempts int
	// RetryIn is when the next attempt is due, from now by the store's clock, for Failed.
	RetryIn time.Duration
	// Reason is the error text to keep, for all but Published: valid UTF-8 without NUL and of bounded length already.
	Reason string
}

// Settled is the result of [Store].Settle.
type Settled struct {
	// Refused are the lanes whose lease is no longer the current one.
	Refused []int
	// Missed are the records of lanes not refused for which no unsettled row was found.
	Missed []*Record
}

// Waker is a [Store] that can end a dispatcher's sleep as soon as something is committed. Without it the dispatcher
// just polls.
type Waker interface {
	// Sleep blocks until something may have been committed since the last Fetch began, d has passed, or ctx has ended,
	// whichever is first. It may return early for no reason. Only the poll that follows tells the truth, so a wake-up
	// may get lost, at the price of latency. Called by one goroutine of each dispatcher.
	Sleep(ctx context.Context, d time.Duration)
}

// FingerprintKeeper is a [Store] that remembers by which ordering strategy each destination is published, so that two
// dispatchers with different configurations do not publish the same destination, and a change of the configuration
// does not go unnoticed.
type FingerprintKeeper interface {
	// Fingerprint returns the fingerprint remembered for the destination of the broker (empty unless there are
	// several). When there is none it remembers the given one and returns it. Callers that come at the same time get
	// the same answer.
	Fingerprint(ctx context.Context, broker, destination, fingerprint string) (remembered string, err error)
	// AcceptFingerprint replaces what is remembered: a person has decided that the change is safe.
	AcceptFingerprint(ctx context.Context, broker, destination, fingerprint string) error
	// Fingerprints returns everything that is remembered, for people and tools: which destinations there are, and what
	// a misspelt one was meant to be. The map is the caller's.
	Fingerprints(ctx context.Context) (map[ordering.Outlet]string, error)
}

// Migration is one step of a store's schema.
type Migration struct {
	// Version is 1 for the first step and grows by one.
	Version int
	// Name says what the step does, in a few words.
	Name string
	// Up and Down are the SQL that makes and undoes the step.
	Up, Down string
}

// Migrator is a [Store] that makes its own tables. Its methods are safe when many processes call them at once.
type Migrator interface {
	// Migrations returns all steps by version, for this configuration (names, formats). It needs no database.
	Migrations() []Migration
	// SchemaVersion returns the version the database is at, 0 for none.
	SchemaVersion(ctx context.Context) (int, error)
	// Migrate moves the schema up or down to the version and returns the steps taken, in order. Going down loses data.
	Migrate(ctx context.Context, version int) ([]Migration, error)
}
