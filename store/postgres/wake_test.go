package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-outbox/outbox/store/postgres"
)

// asleep lets the store sleep until inserts are asked to notify, and returns a sleep that only a notification or a
// nudge can end.
func asleep(t *testing.T, s *postgres.Store) <-chan struct{} {
	t.Helper()
	s.SetLongestSleep(time.Hour)
	ctx := within(t)
	for !s.Listening() && ctx.Err() == nil {
		s.Sleep(ctx, 100*time.Millisecond)
	}
	for queryOne[int](t, s, `SELECT count(*) FROM {outbox_sleepers} WHERE expires_at > now()`) == 0 && ctx.Err() == nil {
		s.Sleep(ctx, 100*time.Millisecond)
	}
	ended := make(chan struct{})
	sleeping, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); <-ended })
	for !s.Deep(ctx) {
		s.Sleep(ctx, time.Hour) // the grace period, in short sleeps
	}
	go func() {
		defer close(ended)
		s.Sleep(sleeping, time.Hour)
	}()
	return ended
}

func wantEnd(t *testing.T, ended <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-ended:
	case <-within(t).Done():
		t.Fatalf("the sleep did not end: %s", why)
	}
}

const plainInsert = `INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'a', 'order.created', '{}')`

func TestSleep_EndsOnPlainInsert(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	migrate(t, s)
	ended := asleep(t, s)
	conn := connect(t, c.url())
	if _, err := conn.Exec(t.Context(), s.SQL(plainInsert)); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, ended, "a row was inserted by plain SQL")

	// One shot: nothing is notified while rows flow.
	ctx := within(t)
	for queryOne[int](t, s, `SELECT count(*) FROM {outbox_sleepers}`) > 0 && ctx.Err() == nil {
		s.Sleep(ctx, time.Millisecond)
	}
	if err := ctx.Err(); err != nil {
		t.Fatal("the flag that makes inserts notify was not taken down")
	}
}

func TestSleep_EndsOnNudge(t *testing.T) {
	t.Parallel()
	s := open(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Sleep(t.Context(), time.Hour)
	}()
	s.Nudge()
	wantEnd(t, ended, "nudged")
	s.Nudge()
	s.Sleep(within(t), time.Hour) // a nudge before the sleep counts too
}

// The trigger runs in every business transaction: who may only insert must be able to, also while somebody sleeps.
func TestSleep_InsertOnlyRoleNotifies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	migrate(t, s)
	execSQL(t, s, `CREATE ROLE writer LOGIN`)
	execSQL(t, s, `GRANT INSERT (aggregate_type, aggregate_id, event_type, payload) ON {outbox} TO writer`)
	execSQL(t, s, `GRANT USAGE ON SEQUENCE {outbox_id_seq} TO writer`)
	ended := asleep(t, s)
	conn := connect(t, c.url())
	for _, statement := range []string{`SET ROLE writer`, `SET search_path TO ''`, s.SQL(plainInsert)} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	wantEnd(t, ended, "a row was inserted by a role that may do nothing else")
}

// Where transactions can be prepared a notification would make PREPARE TRANSACTION fail.
func TestSleep_NeverNotifiesWherePreparedTransactionsAreAllowed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "max_prepared_transactions=5")
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	migrate(t, s)
	execSQL(t, s, `INSERT INTO {outbox_sleepers} VALUES ('somebody', now() + interval '1 hour')`)
	conn := connect(t, c.url())
	for _, statement := range []string{`BEGIN`, s.SQL(plainInsert), `PREPARE TRANSACTION 'p'`, `COMMIT PREPARED 'p'`} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	equal(t, "events", eventIDs(join(t, s, "m").fetch()), []string{queryOne[string](t, s, `SELECT event_id FROM {outbox}`)})
}
