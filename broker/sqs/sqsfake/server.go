package sqsfake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// DefaultMaxMessageBytes is the MaximumMessageSize of a queue that was created without one: 1 MiB, as SQS gives to new
// queues.
const DefaultMaxMessageBytes = 1 << 20

// DedupWindow is how long a FIFO queue remembers de-duplication ids.
const DedupWindow = 5 * time.Minute

// Config configures a [Server]. The zero value is ready to use.
type Config struct {
	// Address is where the server listens. Empty means a free port of 127.0.0.1.
	Address string
	// MaxMessageBytes is the MaximumMessageSize of queues that are created without one. 0 means
	// DefaultMaxMessageBytes.
	MaxMessageBytes int
	// Now is the clock of de-duplication windows and visibility timeouts. Nil means time.Now.
	Now func() time.Time
}

// Server is a running fake. All methods are safe for concurrent use.
type Server struct {
	config  Config
	address string
	handler http.Handler

	mu      sync.Mutex
	queues  map[string]*queue
	changed chan struct{} // closed and replaced whenever a message may have become receivable
	faults  faults
	conns   map[net.Conn]struct{}
	http    *http.Server // nil while stopped
	served  chan struct{}
}

// Start starts a server. Close it in the end.
func Start(config Config) (*Server, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.MaxMessageBytes == 0 {
		config.MaxMessageBytes = DefaultMaxMessageBytes
	}
	s := &Server{
		config: config, address: config.Address, queues: map[string]*queue{}, conns: map[net.Conn]struct{}{},
		changed: make(chan struct{}),
	}
	if s.address == "" {
		s.address = "127.0.0.1:0"
	}
	s.handler = http.HandlerFunc(s.serve)
	if err := s.Restart(); err != nil {
		return nil, err
	}
	return s, nil
}

// URL is the endpoint to configure, for example "http://127.0.0.1:41234". It stays the same over Stop and Restart.
func (s *Server) URL() string { return "http://" + s.address }

// Stop makes the server unreachable: it stops listening and cuts all connections. Requests that were being carried out
// may still be. Messages and queues stay.
func (s *Server) Stop() {
	s.mu.Lock()
	server, served := s.http, s.served
	s.http = nil
	s.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Close() // errors of connections that are cut anyway
	<-served
}

// Restart makes a stopped server reachable again at the same address, with all that was stored. On a running server it
// does nothing.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.address)
	if err != nil {
		return fmt.Errorf("sqsfake: listen: %w", err)
	}
	s.address = listener.Addr().String()
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: time.Minute, ConnState: s.track,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("sqsfake: the server ended", "error", err)
		}
	}()
	s.http, s.served = server, served
	return nil
}

// Cut cuts all connections now; clients can connect again at once. Requests that were being carried out may still be.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close() // it is to be broken
	}
}

// track remembers the open connections.
func (s *Server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
	}
}

// Close ends the server. Close twice is no error.
func (s *Server) Close() { s.Stop() }

// wake lets those who wait for messages look again. Callers hold mu.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}
