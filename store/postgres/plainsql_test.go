package postgres_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// watched tells when its dispatcher goes to sleep until a notification or its next poll.
type watched struct {
	*postgres.Store
	deep chan struct{}
}

func (w *watched) Sleep(ctx context.Context, d time.Duration) {
	if w.Deep(ctx) {
		select {
		case w.deep <- struct{}{}:
		default:
		}
	}
	w.Store.Sleep(ctx, d)
}

// insertLikePsql writes a row as psql does: one text, on a connection of its own, that nobody nudges for.
func insertLikePsql(t *testing.T, c *cluster, s *postgres.Store) {
	t.Helper()
	if _, err := connect(t, c.url()).Exec(t.Context(), s.SQL(plainInsert), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

func TestPlainInsert_WakesADispatcherByNotification(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	migrate(t, s)
	// Only who was notified takes the wish to be notified back.
	execSQL(t, s, `CREATE TABLE {outbox_notified} (LIKE {outbox_sleepers})`)
	execSQL(t, s, `CREATE RULE notified AS ON DELETE TO {outbox_sleepers} DO ALSO INSERT INTO {outbox_notified} SELECT OLD.*`)
	w := &watched{Store: s, deep: make(chan struct{}, 1)}
	b := membroker.New(membroker.Config{})
	r := dispatch(t, w, b, func(c *core.Config) { c.PollMin, c.PollMax = 2*time.Second, 2*time.Second })
	select {
	case <-w.deep:
	case <-within(t).Done():
		t.Fatal("the dispatcher does not go to sleep")
	}
	insertLikePsql(t, c, s)
	r.await("the row is delivered", func() bool { return len(delivered(b)) == 1 })
	r.stop()
	ctx := within(t)
	for queryOne[int](t, s, `SELECT count(*) FROM {outbox_notified}`) == 0 {
		if ctx.Err() != nil {
			t.Fatal("the dispatcher was not notified")
		}
	}
}

func TestPlainInsert_IsFoundByThePollWhereNothingNotifies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "max_prepared_transactions=5")
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	migrate(t, s)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b, func(c *core.Config) { c.PollMin, c.PollMax = 200*time.Millisecond, 200*time.Millisecond })
	r.fetches(2) // it sleeps between its polls
	insertLikePsql(t, c, s)
	r.await("the row is delivered", func() bool { return len(delivered(b)) == 1 })
	r.stop()
	if s.Listening() {
		t.Error("the store listens on a server that cannot notify")
	}
}

// A plain INSERT gets a UUIDv7 as the library makes them: rows that are written together lie together in the index.
func TestPlainInsert_EventIDIsInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	before := core.NewEventID()
	execSQL(t, s, plainInsert)
	got := queryOne[string](t, s, `SELECT event_id FROM {outbox}`)
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("%s is no UUIDv7", got)
	}
	const millis = 13 // of the text
	if after := core.NewEventID(); got[:millis] < before[:millis] || got[:millis] > after[:millis] {
		t.Errorf("%s is not between %s and %s", got, before, after)
	}
}
