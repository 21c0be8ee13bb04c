package notify

import "time"

// kind is what a message is about.
type kind string

const (
	parked  kind = "parked"
	blocked kind = "blocked"
	paused  kind = "paused"
	halted  kind = "halted"
	resumed kind = "resumed" // the end of the two
)

// subject is what is told together: events of a topic that met the same fate, or the trouble of a destination.
type subject struct {
	kind                kind
	topic               string // of parked and blocked
	broker, destination string // of paused and halted
}

// detail is one thing that happened: a copy, for the dispatcher's records are its own.
type detail struct {
	at                                             time.Time
	outboxID                                       int64
	eventID, aggregateType, aggregateID, eventType string
	attempts                                       int // of what is paused: failures in a row
	reason                                         string
}

// alert is what happened to a subject and was not told yet.
type alert struct {
	last  detail
	count int       // not told yet
	due   time.Time // when to tell, if count is not 0
	told  time.Time // when something was told last
	tries int       // how often in a row that failed
}

func (a *alert) happened(d detail, minInterval time.Duration) {
	if a.count == 0 {
		a.due = d.at
		if next := a.told.Add(minInterval); !a.told.IsZero() && next.After(d.at) {
			a.due = next
		}
	}
	a.count++
	a.last = d
}

// forgettable says that there is nothing to tell, and that the next event would be told at once anyway.
func (a *alert) forgettable(now time.Time, minInterval time.Duration) bool {
	return a.count == 0 && !now.Before(a.told.Add(minInterval))
}

// outage is a destination that is paused or halted. Its beginning is told when it has lasted for a time, its end when
// its beginning was.
type outage struct {
	last    detail
	since   time.Time
	told    bool // that it began
	over    bool
	telling bool      // a message about it is under way
	retry   time.Time // when to try again to tell
	tries   int       // how often in a row that failed
}

// goesOn notes a failure, the first or a further one.
func (o *outage) goesOn(d detail) {
	if o.since.IsZero() || o.over && !o.told { // a new one; else the end that nobody was told of was none
		o.since = d.at
	}
	o.over = false
	o.last = d
}

// ended says that nothing is left to tell.
func (o *outage) ended() bool { return o.over && !o.told && !o.telling }

// next says whether its end is to be told, or its beginning, and when; ok is false when there is nothing to tell. What
// could not be told waits for another try, unless all is to be told now.
func (o *outage) next(patience time.Duration, all bool) (end bool, due time.Time, ok bool) {
	if o.telling || o.over != o.told {
		return false, time.Time{}, false
	}
	due = o.since.Add(patience)
	if o.over {
		due = o.last.at
	}
	if !all && o.retry.After(due) {
		due = o.retry
	}
	return o.over, due, true
}
