package postgres_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/postgres"
)

// odd are messages with everything that quoting could get wrong.
func odd() []core.Message {
	none, many := message("a", "e1"), message(`"\ '{},NULL`, "e2")
	none.Payload = nil
	many.Topic = `t"\{}`
	many.Payload = []byte(`{"a": "\"\\ {} NULL ,"}`)
	many.Headers = map[string]string{`"k\{}"`: "v\n\"\\{}'", "empty": ""}
	null := message("NULL", "e3")
	null.Payload = []byte(`null`)
	return []core.Message{none, many, null}
}

func wantMessages(t *testing.T, s *postgres.Store, want []core.Message) {
	t.Helper()
	got := map[string]*core.Record{}
	for _, r := range join(t, s, "m").fetch() {
		got[r.EventID] = r
	}
	for i := range want {
		w, g := &want[i], got[want[i].EventID]
		if g == nil {
			t.Errorf("%s is missing", w.EventID)
			continue
		}
		if g.Topic != w.Topic || g.AggregateID != w.AggregateID || !bytes.Equal(g.Payload, w.Payload) ||
			(g.Payload == nil) != (w.Payload == nil) || !maps.Equal(g.Headers, w.Headers) {
			t.Errorf("%s came back as %+v, payload %s, want %+v, payload %s", w.EventID, g.Message, g.Payload, *w, w.Payload)
		}
	}
}

func TestInSQL(t *testing.T) {
	t.Parallel()
	for _, kind := range []postgres.Payload{postgres.JSONB, postgres.JSON, postgres.Bytes} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := open(t, payloadOf(kind), func(c *postgres.Config) { c.StrictOrder = true })
			db, err := sql.Open("pgx", serverURL(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			messages := odd()
			if kind == postgres.Bytes {
				messages[2].Payload = []byte("\x00\xff{}\\")
			}
			if _, err := s.InSQL(tx).Enqueue(t.Context(), messages...); err != nil {
				t.Fatal(err)
			}
			if _, err := s.InSQL(tx).Enqueue(t.Context(), messages[0]); err != nil {
				t.Fatalf("again: %v", err)
			}
			changed := messages[0]
			changed.EventType = "other"
			var conflict *core.EventConflictError
			if _, err := s.InSQL(tx).Enqueue(t.Context(), changed); !errors.As(err, &conflict) {
				t.Errorf("want a conflict, got %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.InSQL(tx).Enqueue(t.Context(), messages...); !errors.Is(err, core.ErrNoTransaction) {
				t.Errorf("after the commit: %v", err)
			}
			wantMessages(t, s, messages)
		})
	}
}

func TestNilTransactions(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, box := range map[string]core.Enqueuer{"pgx": s.In(nil), "sql": s.InSQL(nil)} {
		if _, err := box.Enqueue(t.Context(), message("a", "e1")); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.EnqueueCopy(t.Context(), nil, message("a", "e1")); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("copy: %v", err)
	}
}

func TestEnqueueCopy(t *testing.T) {
	t.Parallel()
	for _, kind := range []postgres.Payload{postgres.JSONB, postgres.JSON, postgres.Bytes} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := open(t, payloadOf(kind), func(c *postgres.Config) { c.StrictOrder = true })
			err := s.InTx(t.Context(), func(tx pgx.Tx, _ core.Enqueuer) error {
				ids, err := s.EnqueueCopy(t.Context(), tx, odd()...)
				equal(t, "ids", ids, []string{"e1", "e2", "e3"})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			wantMessages(t, s, odd())
		})
	}
}

// Four columns are enough for plain SQL, and every lane is the one that Go computes.
func TestPlainSQL(t *testing.T) {
	t.Parallel()
	s := open(t)
	execSQL(t, s, plainInsert)
	execSQL(t, s, `INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'thing', 'Zoë ' || g, 'changed', '{}', '{"n": 5, "b": true, "s": "text"}' FROM generate_series(1, 50) g`)
	records := join(t, s, "m").fetch()
	if len(records) != 51 {
		t.Fatalf("%d records, want 51", len(records))
	}
	for _, r := range records {
		if r.Lane != ordering.Lane(r.AggregateType, r.AggregateID, 64) || r.EventID == "" || r.CreatedAt.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	if h := records[50].Headers; h["n"] != "5" || h["b"] != "true" || h["s"] != "text" {
		t.Errorf("headers %v", h)
	}
	for name, columns := range map[string]string{
		"an empty aggregate id": `'t', '', 'e', '{}', '{}'`, "headers that are no object": `'t', 'a', 'e', '{}', '[]'`,
	} {
		_, err := s.Pool().Exec(t.Context(), s.SQL(
			`INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type, payload, headers) VALUES (`+columns+`)`))
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Whatever way a row comes in, its transaction has a xid before the id is drawn. Row triggers run after defaults.
func TestXidComesBeforeTheID(t *testing.T) {
	t.Parallel()
	s := open(t)
	execSQL(t, s, `CREATE FUNCTION {outbox_check}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF pg_current_xact_id_if_assigned() IS NULL THEN RAISE 'no xid yet'; END IF; RETURN NEW; END $$`)
	execSQL(t, s, `CREATE TRIGGER a BEFORE INSERT ON {outbox} FOR EACH ROW EXECUTE FUNCTION {outbox_check}()`)
	execSQL(t, s, plainInsert)
	enqueue(t, s, message("a", "e1"))
	err := s.InTx(t.Context(), func(tx pgx.Tx, _ core.Enqueuer) error {
		_, err := s.EnqueueCopy(t.Context(), tx, message("a", "e2"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A sample's xid is above that of every transaction that drew an id before, also where the snapshot ends below it.
func TestSampleIsAboveAllWriters(t *testing.T) {
	t.Parallel()
	c := newCluster(t) // nobody else obtains xids
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet(), Lanes: 1})
	migrate(t, s)
	execSQL(t, s, `CREATE TABLE {outbox_unrelated} (n int)`)
	m := join(t, s, "m")
	fast, slow := begin(t, s), begin(t, s)
	if _, err := fast.Exec(t.Context(), s.SQL(`INSERT INTO {outbox_unrelated} VALUES (1)`)); err != nil { // the lower xid
		t.Fatal(err)
	}
	for _, w := range []struct {
		tx    pgx.Tx
		event string
	}{{slow, "e1"}, {fast, "e2"}} {
		if _, err := s.In(w.tx).Enqueue(t.Context(), message(w.event, w.event)); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, fast)
	m.settle(core.StatusPublished, m.fetch()...)
	for range 5 {
		<-time.After(60 * time.Millisecond) // fetches sample by themselves now and then
		m.fetch()
	}
	if mark := s.LowestMark(); mark != 0 {
		t.Errorf("the mark is %d while the transaction that drew id 1 is open", mark)
	}
	commit(t, slow)
	equal(t, "the late one", eventIDs(m.fetch()), []string{"e1"})
}

func TestStrictOrder(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *postgres.Config) { c.StrictOrder = true })
	first := begin(t, s)
	if _, err := s.In(first).Enqueue(t.Context(), message("b", "e1"), message("a", "e2"), message("a", "e3")); err != nil {
		t.Fatal(err)
	}
	free := func(m core.Message) bool {
		return queryOne[bool](t, s, `SELECT pg_try_advisory_xact_lock($1)`, s.OrderKey(m))
	}
	if free(message("a", "")) || free(message("b", "")) {
		t.Error("another transaction can write the aggregates at the same time")
	}
	if !free(message("c", "")) {
		t.Error("an aggregate that nobody writes is locked")
	}
	commit(t, first)
	if !free(message("a", "")) {
		t.Error("the lock outlives the transaction")
	}
}

// No row where there must be one is an error: zeros would pass for an answer of another server.
func TestNoRowIsAnError(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := s.ReadOne(t.Context(), `SELECT 1 WHERE false`); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("want pgx.ErrNoRows, got %v", err)
	}
	if err := s.ReadOne(t.Context(), `SELECT 1`); err != nil {
		t.Error(err)
	}
}

// A store made with a pool leaves it open.
func TestNew_LeavesThePoolOpen(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), serverURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := postgres.New(pool, postgres.Config{Schema: newSchema(t), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, s)
	works(t, s)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the pool is closed: %v", err)
	}
	if err := s.InTx(t.Context(), nil); !errors.Is(err, core.ErrClosed) {
		t.Errorf("InTx after Close: %v", err)
	}
}

func TestConfig_NamesAllFaults(t *testing.T) {
	t.Parallel()
	err := postgres.Config{
		Schema: string(make([]byte, 64)), Table: "a\x00", Lanes: 5000, AfterPublish: "burn", Payload: "xml",
	}.Validate()
	for _, field := range []string{"Schema", "Table", "Lanes", "AfterPublish", "Payload"} {
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(field+": ")) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	if err := (postgres.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	if _, err := postgres.Open(t.Context(), postgres.Config{}); err == nil {
		t.Error("opened without a DSN")
	}
	if _, err := postgres.New(nil, postgres.Config{}); err == nil {
		t.Error("made without a pool")
	}
}

func TestMigrate_RefusesWhatTheTableIsNot(t *testing.T) {
	t.Parallel()
	s := open(t)
	for field, change := range map[string]func(*postgres.Config){
		"Payload":     func(c *postgres.Config) { c.Payload = postgres.Bytes },
		"Partitioned": func(c *postgres.Config) { c.Partitioned = true },
	} {
		cfg := s.Config()
		change(&cfg)
		other := openConfig(t, cfg)
		var fault *core.FieldError
		if _, err := other.Migrate(t.Context(), 2); !errors.As(err, &fault) || fault.Path != field {
			t.Errorf("want a fault of %s, got %v", field, err)
		}
	}
}

// After a crash of the server, and after a failover to a copy that lags behind, everything held is void, ids are drawn
// again, and what was read before settles nothing.
func TestServerReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet(), Lanes: 1})
	migrate(t, s)
	enqueue(t, s, message("a", "e1"))
	m := join(t, s, "m")
	m.fetch()
	c.stop("fast")
	standby := c.copyTo()
	c.start()

	reset := func(what string) {
		t.Helper()
		for range 10 { // connections that broke are noticed first
			batch, err := s.Fetch(t.Context(), m.request())
			if err != nil {
				continue
			}
			if !batch.Lanes[0].Reset {
				t.Errorf("%s: the lane goes on: %+v", what, batch.Lanes[0])
			}
			m.held = nil
			return
		}
		t.Fatalf("%s: no fetch succeeds", what)
	}
	reset("a restart")
	enqueue(t, s, message("a", "lost"))
	records := m.fetch()
	equal(t, "after the restart", eventIDs(records), []string{"e1", "lost"})
	c.stop("immediate")
	standby.start()
	reset("a failover")
	for range 40 { // the ids skip some after a crash; make sure that the lost one's is drawn again
		enqueue(t, s, message("a", fmt.Sprint("new", time.Now().UnixNano())))
	}
	settled, err := s.Settle(t.Context(), m.settlement(core.StatusPublished, records...))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "missed", eventIDs(settled.Missed), []string{"e1", "lost"})
	if n := len(m.fetch()); n != 41 {
		t.Errorf("%d events after the failover, want e1 and the 40 new ones", n)
	}
}
