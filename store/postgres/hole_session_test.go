package postgres_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/store/postgres"
)

// hole is a way to the database that can swallow everything.
type hole struct {
	t     *testing.T
	proxy *proxy

	mu     sync.Mutex
	filled chan struct{} // closed unless new connections are swallowed
}

func newHole(t *testing.T) *hole {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(serverURL(t))
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{t: t, proxy: newProxy(t, int(cfg.ConnConfig.Port)), filled: make(chan struct{})}
	close(h.filled)
	return h
}

// open returns a store whose connections go this way. The driver keeps the place of a dead connection in the pool for 15
// seconds, so there are more places than the test kills.
func (h *hole) open(cfg postgres.Config) *postgres.Store {
	h.t.Helper()
	pool, err := pgxpool.ParseConfig(cfg.DSN + "&pool_max_conns=30")
	if err != nil {
		h.t.Fatal(err)
	}
	pool.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		h.mu.Lock()
		filled := h.filled
		h.mu.Unlock()
		select {
		case <-filled:
			return (&net.Dialer{}).DialContext(ctx, network, h.proxy.listener.Addr().String())
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	made, err := pgxpool.NewWithConfig(h.t.Context(), pool)
	if err != nil {
		h.t.Fatal(err)
	}
	s, err := postgres.New(made, cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		h.proxy.thaw()
		if err := s.Close(); err != nil {
			h.t.Error(err)
		}
		made.Close()
	})
	return s
}

// swallow makes a hole of the connections there are and of new ones. The function that it returns fills it up: what is
// still in it goes on.
func (h *hole) swallow() (fill func()) {
	filled := make(chan struct{})
	h.mu.Lock()
	h.filled = filled
	h.mu.Unlock()
	h.proxy.freeze()
	fill = sync.OnceFunc(func() { close(filled); h.proxy.thaw() })
	h.t.Cleanup(fill)
	return fill
}
