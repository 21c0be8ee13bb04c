package core

import "github.com/go-outbox/outbox/ordering"

const (
	// suspectAfter is after how many outages in a row, each of which ended at once, the records that were part of all of
	// them are published one by one.
	suspectAfter = 3
	// convictAfter is how often a record has to fail alone, while others worked right afterwards, before its failures
	// are its own. A real outage does that by chance, rarely so often.
	convictAfter = 2
)

// suspects finds the record that breaks whatever it is published over: one that makes the broker close the connection,
// for example. Its failures look like outages, which cost nobody anything and would never end. What gives it away is
// that everything works without it.
//
// First it is found among the records that were under way together: it was part of every outage. Those records are
// then published each in a call of its own. One that fails alone, while another works right afterwards, is convicted
// when that happened often enough: then its failures are charged to it.
type suspects struct {
	outages map[ordering.Outlet]*outage
	alone   map[string]*loner // by event id
}

// outage is what is known of the outages of an outlet.
type outage struct {
	times int             // how many in a row
	all   map[string]bool // the records that were part of all of them
	now   map[string]bool // those that were part of the present one
}

// loner is a record that is published alone.
type loner struct {
	outlet ordering.Outlet
	failed bool // and nothing else has worked since
	before bool // it had failed before that, and nothing else had worked since
	times  int  // it failed, and then others worked
}

func newSuspects() suspects {
	return suspects{outages: map[ordering.Outlet]*outage{}, alone: map[string]*loner{}}
}

// took takes the results of a call.
func (s *suspects) took(outlet ordering.Outlet, batch []*entry, results []Result) {
	for i, e := range batch {
		pe := asPublishError(results[i].Err)
		switch {
		case results[i].Outcome == OutcomeDelivered:
			if len(s.outages) > 0 || len(s.alone) > 0 {
				s.forget(e.EventID)
			}
		case pe != nil && pe.Scope >= ScopeDestination && (pe.Class == ClassTransient || pe.Class == ClassUnavailable):
			in := outlet
			if pe.Scope == ScopeBroker {
				in.Destination = ""
			}
			s.failed(in, e.EventID, len(batch) == 1)
		}
	}
}

// failed notes a record that was part of an outage.
func (s *suspects) failed(outlet ordering.Outlet, eventID string, alone bool) {
	o := s.outages[outlet]
	if o == nil {
		o = &outage{now: map[string]bool{}}
		s.outages[outlet] = o
	}
	o.now[eventID] = true
	if !alone {
		return
	}
	if s.alone[eventID] == nil {
		s.alone[eventID] = &loner{}
	}
	l := s.alone[eventID]
	l.outlet, l.failed, l.before = outlet, true, l.failed
}

// worked says that an outlet that was in trouble works again.
func (s *suspects) worked(outlet ordering.Outlet) {
	for _, l := range s.alone {
		if l.failed && l.outlet == outlet {
			l.failed = false
			l.times++
		}
	}
	o := s.outages[outlet]
	if o == nil {
		return
	}
	both := map[string]bool{}
	for id := range o.now {
		if o.all[id] {
			both[id] = true
		}
	}
	o.times++
	if len(both) == 0 { // an outage of its own
		both, o.times = o.now, 1
	}
	o.all, o.now = both, map[string]bool{}
	if o.times < suspectAfter {
		return
	}
	for id := range o.all {
		if s.alone[id] == nil {
			s.alone[id] = &loner{}
		}
	}
}

// forget takes a record off the list: it was delivered, or is out of the way.
func (s *suspects) forget(eventID string) {
	delete(s.alone, eventID)
	for outlet, o := range s.outages {
		delete(o.all, eventID)
		delete(o.now, eventID)
		if len(o.all) == 0 && len(o.now) == 0 {
			delete(s.outages, outlet)
		}
	}
}

// mark has the records that are suspected published alone.
func (s *suspects) mark(entries []*entry) {
	if len(s.alone) == 0 {
		return
	}
	for _, e := range entries {
		e.Alone = s.alone[e.EventID] != nil
	}
}

// failedLast reports whether the record is the wrong one to try an outlet with: it failed alone, and nothing else has
// worked since.
func (s *suspects) failedLast(eventID string) bool {
	l := s.alone[eventID]
	return l != nil && l.failed
}

// convicted reports whether the present failure of the record is its own.
func (s *suspects) convicted(outlet ordering.Outlet, eventID string) bool {
	l := s.alone[eventID]
	return l != nil && l.outlet == outlet && l.times >= convictAfter && !l.before
}
