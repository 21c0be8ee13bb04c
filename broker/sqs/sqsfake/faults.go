package sqsfake

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Error is an error as SQS answers it, for a whole request or for one entry of a batch.
type Error struct {
	// Status is the HTTP status of a whole request; 0 means 400, or 500 when SenderFault is false.
	Status int
	// Code is the name of the error, for example "RequestThrottled".
	Code string
	// Message is the text for people.
	Message string
	// SenderFault says that the request is at fault, not the service.
	SenderFault bool
}

// refuse is an error of the sender.
func refuse(code, message string) *Error {
	return &Error{Code: code, Message: message, SenderFault: true}
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (e *Error) status() int {
	switch {
	case e.Status != 0:
		return e.Status
	case e.SenderFault:
		return http.StatusBadRequest
	default:
		return http.StatusInternalServerError
	}
}

// Throttled says that requests come too fast.
func Throttled() *Error {
	return &Error{
		Code: "RequestThrottled", Message: "The rate of requests exceeds the limit.", Status: http.StatusBadRequest,
	}
}

// InternalError is trouble of the service, with nothing said about what became of the request.
func InternalError() *Error {
	return &Error{Code: "InternalError", Message: "We encountered an internal error. Please try again."}
}

// Unavailable says that the service cannot serve now.
func Unavailable() *Error {
	return &Error{Code: "ServiceUnavailable", Message: "Service is unavailable.", Status: http.StatusServiceUnavailable}
}

// ExpiredCredentials says that the session token has expired.
func ExpiredCredentials() *Error {
	return &Error{
		Code: "ExpiredTokenException", Message: "The security token included in the request is expired.",
		Status: http.StatusForbidden, SenderFault: true,
	}
}

// AccessDenied says that a right is missing.
func AccessDenied() *Error {
	return &Error{
		Code: "AccessDenied", Message: "User is not authorized to perform this action.",
		Status: http.StatusForbidden, SenderFault: true,
	}
}

// QueueDoesNotExist says that there is no such queue.
func QueueDoesNotExist() *Error {
	return refuse("QueueDoesNotExist", "The specified queue does not exist.")
}

// Invalid says that a value is against the rules.
func Invalid(format string, args ...any) *Error {
	return refuse("InvalidParameterValue", fmt.Sprintf(format, args...))
}

// Request is one request as a [Script] sees it.
type Request struct {
	// N counts the requests of this Action from 1.
	N int
	// Action is for example "SendMessageBatch".
	Action string
	// Queue is the name of the queue; empty for requests about none.
	Queue string
	// Entries are what is sent, for SendMessage and SendMessageBatch. A script must neither change nor keep them.
	Entries []Entry
}

// Fault is what happens to one request. The zero Fault carries it out.
type Fault struct {
	// Delay is a wait before the request is carried out; the end of the connection ends it.
	Delay time.Duration
	// Until is another wait: for this channel to be closed.
	Until <-chan struct{}
	// Error refuses the whole request; nothing is carried out.
	Error *Error
	// Entries refuses single entries of a SendMessageBatch, by index; the others are stored.
	Entries map[int]*Error
	// Omit leaves entries out of the reply that were stored all the same, by index.
	Omit []int
	// BadChecksum falsifies the checksum of the bodies of these entries in the reply.
	BadChecksum []int
	// Vanish answers that all is stored, but stores nothing: what SQS may do up to 60 s after a queue was deleted.
	Vanish bool
	// LoseReply carries the request out and then cuts the connection instead of answering.
	LoseReply bool
	// Then runs after the request was carried out and before it is answered.
	Then func()
}

// Script decides what happens to a request. It is called once for each, by several goroutines when requests come at
// the same time.
type Script func(Request) Fault

// faults are what the methods of a Server switch on. Server.mu guards them.
type faults struct {
	script   Script
	latency  time.Duration
	counts   map[string]int
	refuse   int
	refusal  *Error
	entry    int // one more than the index
	entryErr *Error
	lose     int
	caught   chan struct{}
	released chan struct{} // nil while nothing hangs
}

// SetScript decides about every request from now on; nil ends it. What the other methods switch on comes first.
func (s *Server) SetScript(script Script) { s.change(func(f *faults) { f.script = script }) }

// SetLatency makes every request take this long at least: a round trip through a network.
func (s *Server) SetLatency(d time.Duration) { s.change(func(f *faults) { f.latency = d }) }

// Refuse refuses the next n requests that send messages; 0 ends it.
func (s *Server) Refuse(n int, err *Error) {
	s.change(func(f *faults) { f.refuse, f.refusal = n, err })
}

// RefuseEntry refuses the entry at index k of the next SendMessageBatch, whose other entries are stored; less than 0
// ends it.
func (s *Server) RefuseEntry(k int, err *Error) {
	s.change(func(f *faults) { f.entry, f.entryErr = max(k+1, 0), err })
}

// LoseReplies carries out the next n requests that send messages but cuts the connection instead of answering; 0 ends
// it.
func (s *Server) LoseReplies(n int) { s.change(func(f *faults) { f.lose = n }) }

// Hang swallows every request until release, or until its connection is closed: then it is never carried out. Caught
// gets a value when a request was swallowed. Release can be called twice.
func (s *Server) Hang() (caught <-chan struct{}, release func()) {
	taken, end := make(chan struct{}, 1), make(chan struct{})
	s.change(func(f *faults) { f.caught, f.released = taken, end })
	return taken, sync.OnceFunc(func() {
		close(end)
		s.change(func(f *faults) {
			if f.released == end {
				f.released = nil
			}
		})
	})
}

// Count tells how many requests of an action have come so far.
func (s *Server) Count(action string) (n int) {
	s.change(func(f *faults) { n = f.counts[action] })
	return n
}

func (s *Server) change(what func(*faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what(&s.faults)
}

// fault decides about a request.
func (s *Server) fault(action string, body []byte) (fault Fault) {
	var (
		script Script
		n      int
	)
	s.change(func(f *faults) {
		if f.counts == nil {
			f.counts = map[string]int{}
		}
		f.counts[action]++
		n, script = f.counts[action], f.script
		fault = f.next(action)
	})
	if script == nil || fault.Error != nil || fault.Until != nil {
		return fault
	}
	request := describe(action, body)
	request.N = n
	scripted := script(request)
	scripted.Delay += fault.Delay
	scripted.LoseReply = scripted.LoseReply || fault.LoseReply
	if scripted.Entries == nil {
		scripted.Entries = fault.Entries
	}
	return scripted
}

// next is what the switches say.
func (f *faults) next(action string) (fault Fault) {
	fault.Delay = f.latency
	switch {
	case f.released != nil:
		fault.Until = f.released
		select {
		case f.caught <- struct{}{}:
		default:
		}
	case action != "SendMessageBatch" && action != "SendMessage":
	case f.refuse > 0:
		f.refuse--
		fault.Error = f.refusal
	case f.entry > 0:
		fault.Entries = map[int]*Error{f.entry - 1: f.entryErr}
		f.entry = 0
	case f.lose > 0:
		f.lose--
		fault.LoseReply = true
	}
	return fault
}
