package postgres_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// connectCut makes a connection that breaks after the server got a COMMIT, before its answer arrives.
func connectCut(t *testing.T) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(serverURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &cutConn{Conn: conn}, err
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

type cutConn struct {
	net.Conn
	cut atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("commit")) {
		c.cut.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.cut.Load() && err == nil {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}
