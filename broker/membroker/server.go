package membroker

import (
	"maps"
	"slices"
	"sync"

	"github.com/go-outbox/outbox/ordering"
)

// Message is a stored message, as a consumer would see it. Its payload and headers are shared with the log: read only.
type Message struct {
	// Destination is the log it is in.
	Destination string
	// Token is what keeps its key together: the record key.
	Token string
	// Key is the unit of order.
	Key ordering.Key
	// EventID is the event's id.
	EventID string
	// RecordID is the record's position in the outbox table.
	RecordID int64
	// Payload is the body; nil and empty are different.
	Payload []byte
	// Headers are the outbox's own and the user's.
	Headers map[string]string
}

// Server is the memory behind one or more brokers, as a cluster is behind its clients. It outlives their Close. All
// methods are safe for concurrent use.
type Server struct {
	mu       sync.Mutex
	logs     map[string][]*Message
	known    map[string]bool // nil when every destination exists
	stopped  bool
	accepted int64
}

// NewServer returns an empty server. With destinations only these exist, and messages to others are rejected as
// misconfigured until [Server].Create makes them; without any, every destination exists.
func NewServer(destinations ...string) *Server {
	s := &Server{logs: map[string][]*Message{}}
	s.Create(destinations...)
	return s
}

// Create makes destinations that do not exist yet. After it, destinations are no longer made by being used.
func (s *Server) Create(destinations ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range destinations {
		if s.known == nil {
			s.known = map[string]bool{}
		}
		s.known[d] = true
	}
}

// Exists tells whether a message to the destination would be accepted.
func (s *Server) Exists(destination string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known == nil || s.known[destination]
}

// Stop makes the server unreachable: calls are rejected as unavailable and Check fails. What is stored stays.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// Start makes the server reachable again.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = false
}

// Messages returns what is stored at a destination, oldest first.
func (s *Server) Messages(destination string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return values(s.logs[destination])
}

// All returns everything stored, by destination.
func (s *Server) All() map[string][]Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]Message, len(s.logs))
	for destination, log := range s.logs {
		all[destination] = values(log)
	}
	return all
}

// Destinations returns the names of the destinations that hold messages, sorted.
func (s *Server) Destinations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.logs))
}

// Count returns how many messages were accepted so far, discarded ones included.
func (s *Server) Count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// isStopped tells whether the server is unreachable.
func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// append stores one message. The caller holds the lock.
func (s *Server) append(m *Message) {
	s.accepted++
	s.logs[m.Destination] = append(s.logs[m.Destination], m)
}

func values(log []*Message) []Message {
	out := make([]Message, len(log))
	for i, m := range log {
		out[i] = *m
	}
	return out
}

// discard counts messages without keeping them.
func (s *Server) discard(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted += int64(n)
}
