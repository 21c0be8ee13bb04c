package sqlite

import (
	"context"
	"database/sql"
	"sync"
)

// watch notices commits of other connections, those of other processes among them, by SQLite's data_version: a number
// that one connection may compare over time, and that costs a look into shared memory. The zero value watches nothing.
type watch struct {
	db *sql.DB // nil for a caller's pool, of which no connection may be kept

	mu   sync.Mutex
	conn *sql.Conn // kept, as the numbers of two connections have nothing to do with each other
	seen int64
}

// changed reports whether something was committed since the last call. It is false, too, when it cannot tell.
func (w *watch) changed(ctx context.Context) bool {
	if w.db == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return false
		}
		w.conn = conn
	}
	var version int64
	if err := w.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil {
		_ = w.conn.Close() // the next call gets another one
		w.conn = nil
		return false
	}
	was := w.seen
	w.seen = version
	return version != was
}

// close gives the connection back.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}
