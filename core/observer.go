package core

import "time"

// Observer is told what a [Dispatcher] does, for metrics, traces and alerts. Observe is called from the dispatcher's
// own goroutine: it must not block and must not keep what the event points to. A panic in it is logged and otherwise
// ignored.
type Observer interface {
	Observe(event Event)
}

// Event is one of the event types of this package. New ones may be added: an Observer ignores those it does not know.
type Event interface{ event() }

type (
	// FetchEvent says that a fetch ended.
	FetchEvent struct {
		// Lanes is how many lanes it read.
		Lanes int
		// Records is how many records it returned.
		Records int
		// Took is how long it took.
		Took time.Duration
		// Err is not nil when it failed.
		Err error
	}
	// PublishEvent says that a publish call ended.
	PublishEvent struct {
		// Broker and Destination are where the batch went; Broker is empty unless there are several.
		Broker, Destination string
		// Batch and Results are the call's, one result for each message.
		Batch   []Prepared
		Results []Result
		// Took is how long it took.
		Took time.Duration
	}
	// SettleEvent says that a settle ended.
	SettleEvent struct {
		// Published, Failed, Parked and Blocked are how many records of each status it was about.
		Published, Failed, Parked, Blocked int
		// Missed is how many rows were not there any more.
		Missed int
		// Took is how long it took.
		Took time.Duration
		// Err is not nil when it failed; it is going to be repeated.
		Err error
	}
	// RetryEvent says that a failed attempt is being charged to a record.
	RetryEvent struct {
		Record *Record
		// Attempts is how many were charged, this one included.
		Attempts int
		// RetryIn is when the next one is due.
		RetryIn time.Duration
		Err     error
	}
	// ParkEvent says that a record was parked, and that this is written down.
	ParkEvent struct {
		Record *Record
		// Attempts is how many were charged.
		Attempts int
		// Reason is the text kept with the row.
		Reason string
	}
	// BlockEvent says that a record is blocked and its key waits for a person, and that this is written down.
	BlockEvent struct {
		Record *Record
		// Attempts is how many were charged.
		Attempts int
		// Reason is the text kept with the row.
		Reason string
	}
	// HaltEvent says that nothing more is published to a destination because a record that goes there is blocked
	// ([ExhaustedHalt]). A ResumeEvent ends it.
	HaltEvent struct {
		Broker, Destination string
		// Record is the one that is blocked.
		Record *Record
	}
	// PauseEvent says that a destination, or with an empty Destination the broker, is in trouble and paused.
	PauseEvent struct {
		Broker, Destination string
		// Failures is how often it failed in a row.
		Failures int
		// RetryIn is when it is tried again.
		RetryIn time.Duration
		Err     error
	}
	// ResumeEvent says that a paused destination or broker works again.
	ResumeEvent struct{ Broker, Destination string }
	// LanesEvent says that the lanes of this dispatcher changed.
	LanesEvent struct {
		// Held is how many it has, Total how many there are.
		Held, Total int
		// Lost is how many were taken from it, rather than given back.
		Lost int
		// Members is how many dispatchers are alive.
		Members int
	}
)

func (FetchEvent) event()   {}
func (PublishEvent) event() {}
func (SettleEvent) event()  {}
func (RetryEvent) event()   {}
func (ParkEvent) event()    {}
func (BlockEvent) event()   {}
func (HaltEvent) event()    {}
func (PauseEvent) event()   {}
func (ResumeEvent) event()  {}
func (LanesEvent) event()   {}

// nobody observes.
type nobody struct{}

func (nobody) Observe(Event) {}
