package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/store/postgres"
)

// logLines is a log whose lines a test waits for.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// forgotten is a session that took a lock and idles.
func forgotten(t *testing.T, keys ...int64) (conn *pgx.Conn, name string) {
	t.Helper()
	name = fmt.Sprintf("forgotten-%d", keys[0])
	conn = connect(t, serverURL(t)+"&application_name="+name)
	for _, key := range keys {
		if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, key); err != nil {
			t.Fatal(err)
		}
	}
	return conn, name
}

// Who migrates while another session has the lock says who that is, gives up when its context ends, and goes on when
// the lock is free.
func TestField_096_MigrateSaysWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	lines := make(logLines, 100)
	s := openConfig(t, postgres.Config{
		DSN: serverURL(t), Schema: newSchema(t), Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	forgotten(t, s.LockKey("migrate")^1<<40) // a neighbour: the server keeps the number in two halves
	conn, name := forgotten(t, s.LockKey("migrate"))
	who := []string{fmt.Sprint(conn.PgConn().PID()), name}
	migrated := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := s.Migrate(ctx, len(s.Migrations()))
			done <- err
		}()
		select {
		case line := <-lines:
			for _, want := range who {
				if !strings.Contains(line, want) {
					t.Errorf("the log does not say %q: %s", want, line)
				}
			}
		case err := <-done:
			t.Fatalf("did not wait: %v", err)
		case <-within(t).Done():
			t.Fatal("nothing is said of the wait")
		}
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := migrated(ctx)
	cancel()
	err := <-done
	if !errors.Is(err, context.Canceled) {
		t.Errorf("want context.Canceled, got %v", err)
	}
	for _, want := range append(who, "pg_terminate_backend("+who[0]+")") {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}

	done = migrated(within(t))
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	works(t, s)
}

// Whoever else uses the numbers of our locks stops no dispatcher. The numbers are made of the table's name, so that other
// tables do not even wait for a migration.
func TestField_096_PublishingNeedsNoLock(t *testing.T) {
	t.Parallel()
	for _, after := range []postgres.AfterPublish{postgres.Mark, postgres.Archive, postgres.Delete} {
		t.Run(string(after), func(t *testing.T) {
			t.Parallel()
			s := open(t, func(c *postgres.Config) { c.AfterPublish = after })
			forgotten(t, s.LockKey("migrate"), s.LockKey("purge"))
			b := membroker.New(membroker.Config{})
			r := dispatch(t, openSame(t, s), b)
			for n := range 100 {
				enqueue(t, s, message(fmt.Sprint("a", n%10), fmt.Sprint("e", n)))
			}
			r.await("all are settled", func() bool {
				return queryOne[int](t, s, `SELECT count(*) FROM {outbox} WHERE published_at IS NULL`) == 0
			})
			if n := len(delivered(b)); n != 100 {
				t.Errorf("%d of 100 events were delivered", n)
			}
			if n, err := s.Purge(t.Context(), 0, 10); n != 0 || err != nil {
				t.Errorf("purged %d (%v) while another session purges", n, err)
			}
			cfg := s.Config()
			cfg.Table = "other"
			other := openConfig(t, cfg)
			if _, err := other.Migrate(within(t), len(other.Migrations())); err != nil {
				t.Error(err)
			}
		})
	}
}
