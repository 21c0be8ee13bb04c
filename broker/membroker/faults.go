package membroker

import (
	"errors"
	"sync"

	"github.com/go-outbox/outbox/core"
)

// Faults is a script whose faults are switched on and off while calls are made, where a [Script] of plans would have
// to know them beforehand. One Faults may serve several brokers. The zero value has no fault; all methods are safe for
// concurrent use.
//
//	var faults membroker.Faults
//	broker := membroker.New(membroker.Config{Script: faults.Script})
type Faults struct {
	mu       sync.Mutex
	refuse   int
	refuseAt int // one more than the index; 0 is none
	lose     int
	caught   chan struct{}
	released chan struct{} // nil while nothing hangs
}

// Refuse rejects the next n calls with an error that passes; 0 ends it.
func (f *Faults) Refuse(n int) { f.change(func() { f.refuse = n }) }

// RefuseMessage rejects the message at index k of the next call with an error that passes; less than 0 ends it.
func (f *Faults) RefuseMessage(k int) { f.change(func() { f.refuseAt = max(k+1, 0) }) }

// LoseReply stores the messages of the next n calls, but loses the answers; 0 ends it.
func (f *Faults) LoseReply(n int) { f.change(func() { f.lose = n }) }

// Hang holds every call back until release, or until its context ends: then nothing of it is stored. Caught gets a
// value when a call is held. Release can be called twice.
func (f *Faults) Hang() (caught <-chan struct{}, release func()) {
	taken, end := make(chan struct{}, 1), make(chan struct{})
	f.change(func() { f.caught, f.released = taken, end })
	var once sync.Once
	return taken, func() {
		once.Do(func() {
			close(end)
			f.change(func() {
				if f.released == end {
					f.released = nil
				}
			})
		})
	}
}

// Script is the [Script] to configure. Of several faults the first in this order hits a call: Hang, Refuse,
// RefuseMessage, LoseReply.
func (f *Faults) Script(Call) (plan Plan) {
	f.change(func() {
		switch {
		case f.released != nil:
			plan = Hold(f.released)
			select {
			case f.caught <- struct{}{}:
			default:
			}
		case f.refuse > 0:
			f.refuse--
			plan = Reject(busy())
		case f.refuseAt > 0:
			plan = Reject(busy(), f.refuseAt-1)
			f.refuseAt = 0
		case f.lose > 0:
			f.lose--
			plan = LoseReply()
		}
	})
	return plan
}

func (f *Faults) change(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

// busy is the error of a refusal.
func busy() error {
	return &core.PublishError{
		Class: core.ClassTransient, Scope: core.ScopeMessage, Code: "BUSY",
		Err: errors.New("membroker: the server is busy: try again"),
	}
}
