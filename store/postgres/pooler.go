package postgres

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// pooler knows whether the connections lead to a pooler in transaction mode. It asks the first server that can be
// reached, so that a Store can be opened while its database is down.
type pooler struct {
	known, there atomic.Bool // there is set first
}

// newPooler takes what is known already.
func newPooler(known, there bool) *pooler {
	p := &pooler{}
	p.there.Store(there)
	p.known.Store(known)
	return p
}

// beforeConnect makes a connection of the Store's own pool suit a pooler. Those that are made at the same time as the
// first one ask each for itself: waiting for each other they could wait long for a server that is silent.
func (p *pooler) beforeConnect(ctx context.Context, cc *pgx.ConnConfig) error {
	if !p.known.Load() {
		there, err := poolerAt(ctx, cc.Copy())
		if err != nil {
			return err
		}
		p.there.Store(there)
		p.known.Store(true)
	}
	if p.there.Load() && cc.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return nil
}

// poolerAt connects once and reports whether a pooler answers: it gives clients another process id than the server's.
func poolerAt(ctx context.Context, cc *pgx.ConnConfig) (bool, error) {
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var pid uint32
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return false, err
	}
	return pid != conn.PgConn().PID(), nil
}
