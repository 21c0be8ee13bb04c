package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// Whoever starts before the database must not have to try again: calls fail until it is there, and a dispatcher waits.
func TestOpen_BeforeTheServerIsThere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.stop("fast")
	s := openConfig(t, postgres.Config{DSN: c.url(), Logger: quiet()})
	_, err := s.Lease(t.Context(), core.LeaseRequest{Member: "m", TTL: time.Second})
	if err == nil || errors.Is(err, core.ErrNotMigrated) || !strings.Contains(err.Error(), "connect") {
		t.Errorf("want an error that says that nobody can be connected to, got %v", err)
	}
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b, func(c *core.Config) { c.Outage.Initial, c.Outage.Max = time.Millisecond, 50*time.Millisecond })
	c.start()
	migrate(t, s)
	enqueue(t, s, message("a", "e1"))
	r.await("e1 is delivered", func() bool { return len(delivered(b)) == 1 })
	r.stop() // before the server
}

// What can never work is an error of Open, without the password.
func TestOpen_RefusesABadDSN(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"a bad port":     "postgres://me:hunter2@localhost:notaport/db",
		"no URL":         "postgres://me:hunter2@local host/db?sslmode=disable",
		"a bad setting":  "host=localhost password=hunter2 sslmode=perhaps",
		"a bad pool":     "postgres://me:hunter2@localhost/db?pool_max_conns=many",
		"a bad password": "postgres://me:hunter2%zz@localhost/db",
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
		var fault *core.FieldError
		if !errors.As(err, &fault) || fault.Path != "DSN" {
			t.Errorf("%s: want a fault of DSN, got %v", name, err)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
	}
}
