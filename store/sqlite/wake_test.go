package sqlite_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/store/sqlite"
)

// sleep returns once a sleep has ended by itself.
func sleep(t *testing.T, s *sqlite.Store, cause string) {
	t.Helper()
	ctx := within(t)
	s.Sleep(ctx, time.Hour)
	if ctx.Err() != nil {
		t.Errorf("%s did not end a sleep", cause)
	}
}

func TestSleepEndsOnNudge(t *testing.T) {
	t.Parallel()
	db := pool(t, "file::memory:?_txlock=immediate", 1) // a pool of the caller: only a nudge wakes
	s, err := sqlite.New(db, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.Nudge() // before the sleep
	sleep(t, s, "an early nudge")
	var wg sync.WaitGroup
	wg.Go(s.Nudge)
	sleep(t, s, "a nudge")
	wg.Wait()
}

func TestSleepEndsOnCommitElsewhere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	s, other := openFile(t, path), openFile(t, path)
	m := join(t, s, "m1")
	m.fetch()
	enqueue(t, other, numbered(1)...)
	sleep(t, s, "a commit of another process before it")
	m.fetch()
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := tryEnqueue(t.Context(), other, message("a", "later")); err != nil {
			t.Error(err)
		}
	})
	sleep(t, s, "a commit of another process")
	writer.Wait()
}

func TestSleepEndsWithContext(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Sleep(ctx, time.Hour)
	s.Sleep(t.Context(), 0)
}
