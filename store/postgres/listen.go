package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// defaultPingEvery is how often a silent connection is asked whether it still lives, defaultPingTimeout how long the
	// answer may take.
	defaultPingEvery   = 10 * time.Second
	defaultPingTimeout = 5 * time.Second
	// reconnectFirst and reconnectMost bound the growing wait before the next attempt to listen.
	reconnectFirst = 200 * time.Millisecond
	reconnectMost  = 10 * time.Second
)

// These end the listener for good.
var (
	errPrepared = errors.New("the server allows prepared transactions, which cannot notify")
	errPooler   = errors.New("a pooler in transaction mode passes no notifications on")
)

// listen starts the listener, once.
func (w *waker) listen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.store
	if w.started || s.cfg.NoListen || s.closing.Err() != nil {
		return
	}
	w.started = true
	w.done.Go(w.run)
}

// run keeps a connection that listens until the Store is closed.
func (w *waker) run() {
	ctx, log := w.store.closing, w.store.cfg.Logger
	pause := reconnectFirst
	for {
		start := time.Now()
		err := w.connection(ctx)
		w.live.Store(false)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errPrepared) || errors.Is(err, errPooler):
			log.Info("not listening for new events, polling instead", "reason", err)
			return
		}
		if time.Since(start) > reconnectMost {
			pause = reconnectFirst
		}
		log.Warn("the connection that listens for new events was lost, polling until it is back", "error", err, "retry_in", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, reconnectMost)
	}
}

// connection listens on one connection until it fails.
func (w *waker) connection(ctx context.Context) error {
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	w.live.Store(true)
	for {
		waiting, cancel := context.WithTimeout(ctx, w.pingEvery)
		_, err := conn.WaitForNotification(waiting)
		silent := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			err = w.notified(ctx, conn)
		case silent:
			err = w.ping(ctx, conn)
		}
		if err != nil {
			return err
		}
	}
}

// connect makes the connection and says LISTEN. It is none of the pool's, as it is never free.
func (w *waker) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.pingTimeout)
	defer cancel()
	pool := w.store.pool.Config()
	if pool.BeforeConnect != nil { // it may fetch a password
		if err := pool.BeforeConnect(ctx, pool.ConnConfig); err != nil {
			return nil, err
		}
	}
	if w.store.pooler.there.Load() {
		return nil, errPooler
	}
	conn, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err != nil {
		return nil, err
	}
	var prepared string
	err = conn.QueryRow(ctx, `SHOW max_prepared_transactions`).Scan(&prepared)
	if err == nil && prepared != "0" {
		err = errPrepared
	}
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+quote(w.store.cfg.names().channel()))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// ping finds out that the other end is gone although nobody said so.
func (w *waker) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, w.pingTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
