package memstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func TestConfig_ReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := memstore.New(memstore.Config{Lanes: -1, AfterPublish: "burn"})
	if err == nil || !strings.Contains(err.Error(), "Lanes: -1") || !strings.Contains(err.Error(), `AfterPublish: "burn"`) {
		t.Errorf("want both faults, got %v", err)
	}
	var fault *core.FieldError
	if !errors.As(err, &fault) {
		t.Errorf("want a *core.FieldError in %v", err)
	}
}

func TestSleep_EndsWithACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(t, memstore.Config{})
		fetch(t, store, request("m", take(t, store, "m")))
		start := time.Now()
		woken := make(chan time.Duration, 1)
		go func() {
			store.Sleep(t.Context(), time.Hour)
			woken <- time.Since(start)
		}()
		synctest.Wait()
		tx := store.Replica().Begin() // another process
		_, err := tx.Enqueue(t.Context(), event("e1", "a"))
		must(t, err)
		synctest.Wait()
		select {
		case <-woken:
			t.Fatal("an event that is not committed ended the sleep")
		default:
		}
		must(t, tx.Commit())
		if slept := <-woken; slept != 0 {
			t.Errorf("the commit ended the sleep after %v", slept)
		}
	})
}

// A commit between a fetch that did not see it and the sleep must not be slept through.
func TestSleep_DoesNotBeginAfterNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(t, memstore.Config{})
		leases := take(t, store, "m")
		enqueue(t, store, event("e1", "a"))
		fetch(t, store, request("m", leases))
		for name, news := range map[string]func(){
			"commit":  func() { enqueue(t, store, event("e2", "a")) },
			"requeue": func() { must(t, store.Requeue("e1")) },
			"nudge":   store.Nudge,
		} {
			news()
			start := time.Now()
			store.Sleep(t.Context(), time.Hour)
			if slept := time.Since(start); slept != 0 {
				t.Errorf("slept %v after a %s", slept, name)
			}
			fetch(t, store, request("m", leases))
		}
		start := time.Now()
		store.Sleep(t.Context(), time.Hour)
		if slept := time.Since(start); slept != time.Hour {
			t.Errorf("slept %v without news, want an hour", slept)
		}
	})
}

func TestSleep_EndsWithClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(t, memstore.Config{})
		fetch(t, store, request("m", take(t, store, "m")))
		start := time.Now()
		time.AfterFunc(time.Minute, func() { _ = store.Close() })
		store.Sleep(t.Context(), time.Hour)
		if slept := time.Since(start); slept != time.Minute {
			t.Errorf("slept %v, want the minute until Close", slept)
		}
	})
}

func TestLease_ExpiresToTheInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(t, memstore.Config{Lanes: 1})
		lease := func(member string) core.Leases {
			leases, err := store.Lease(t.Context(), core.LeaseRequest{Member: member, TTL: 10 * time.Second, Want: []int{0}})
			must(t, err)
			return leases
		}
		lease("silent")
		reply := lease("heir")
		if len(reply.Held) != 0 || reply.NextExpiry != 10*time.Second {
			t.Fatalf("want nothing held and NextExpiry 10s, got %+v", reply)
		}
		<-time.After(reply.NextExpiry - 1)
		if reply = lease("heir"); len(reply.Held) != 0 || reply.NextExpiry != 1 {
			t.Fatalf("want nothing held and NextExpiry 1ns, got %+v", reply)
		}
		<-time.After(reply.NextExpiry)
		reply = lease("heir")
		want := []core.Lease{{Lane: 0, Epoch: 2}}
		if !slices.Equal(reply.Held, want) || !slices.Equal(reply.Members, []string{"heir"}) {
			t.Errorf("want %v held by the only member heir, got %+v", want, reply)
		}
	})
}

// The contract asks that a fetch whose answer got lost can be repeated: what it would have told is told again.
func TestFault_ALostFetchUsesNothingUp(t *testing.T) {
	t.Parallel()
	on, lost := false, errors.New("connection reset")
	store := open(t, memstore.Config{Fault: failing(memstore.OpFetch, true, &on, lost)})
	leases := take(t, store, "m")
	enqueue(t, store, event("e1", "a"), event("e2", "a"))
	must(t, store.Requeue("e1"))

	on = true
	if _, err := store.Fetch(t.Context(), request("m", leases)); !errors.Is(err, lost) {
		t.Fatalf("want the injected fault, got %v", err)
	}
	on = false
	batch, err := store.Fetch(t.Context(), request("m", leases))
	must(t, err)
	for i, lane := range batch.Lanes {
		if len(lane.Records) == 0 {
			continue
		}
		if !slices.Equal(eventIDs(lane.Records), []string{"e1", "e2"}) || !slices.Equal(lane.Rewound, []int64{1}) || lane.After != 0 {
			t.Errorf("lane %d after a lost answer: %+v", i, lane)
		}
		return
	}
	t.Error("nothing was returned after a lost answer")
}

func TestFault_BeforeNothingIsDoneAndAfterAllIs(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		on, fault := false, errors.New("connection reset")
		store := open(t, memstore.Config{Fault: failing(memstore.OpCommit, done, &on, fault)})
		tx := store.Begin()
		_, err := tx.Enqueue(t.Context(), event("e1", "a"))
		must(t, err)
		on = true
		if err := tx.Commit(); !errors.Is(err, fault) {
			t.Fatalf("want the injected fault, got %v", err)
		}
		if _, committed := store.Row("e1"); committed != done {
			t.Errorf("fault with Done %t: committed is %t", done, committed)
		}
	}
}

// No lock is held while a fault blocks: other calls go on.
func TestFault_MayBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := open(t, memstore.Config{Fault: func(ctx context.Context, at memstore.Point) error {
			if at.Member == "slow" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := store.Lease(ctx, core.LeaseRequest{Member: "slow", TTL: time.Hour})
			ended <- err
		}()
		synctest.Wait()
		take(t, store, "quick")
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the end of the context, got %v", err)
		}
	})
}

func TestCommit_OfTwoTransactionsWithOneEventID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		second   core.Message
		conflict bool
	}{
		{"the same event", event("e1", "a"), false},
		{"another aggregate", event("e1", "b"), true},
	} {
		store := open(t, memstore.Config{})
		first, second := store.Begin(), store.Begin()
		_, err := first.Enqueue(t.Context(), event("e1", "a"))
		must(t, err)
		_, err = second.Enqueue(t.Context(), c.second, event("e2", "c"))
		must(t, err)
		must(t, first.Commit())
		var conflict *core.EventConflictError
		if err = second.Commit(); errors.As(err, &conflict) != c.conflict {
			t.Errorf("%s: commit returned %v", c.name, err)
		}
		if _, committed := store.Row("e2"); committed == c.conflict {
			t.Errorf("%s: e2 is committed: %t", c.name, committed)
		}
		records := fetch(t, store, request("m", take(t, store, "m")))
		if first := slices.DeleteFunc(records, func(r *core.Record) bool { return r.EventID != "e1" }); len(first) != 1 ||
			first[0].AggregateID != "a" || first[0].ID != 1 {
			t.Errorf("%s: want e1 once, as the first transaction wrote it, got %+v", c.name, first)
		}
	}
}

func TestTx_IsOverAfterItsEnd(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{})
	for name, end := range map[string]func(*memstore.Tx) error{
		"commit":   (*memstore.Tx).Commit,
		"rollback": (*memstore.Tx).Rollback,
		"restart":  func(*memstore.Tx) error { return store.Restart() },
	} {
		tx := store.Begin()
		must(t, end(tx))
		if _, err := tx.Enqueue(t.Context(), event("e1", "a")); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("enqueue after %s: want core.ErrNoTransaction, got %v", name, err)
		}
		if err := tx.Commit(); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("commit after %s: want core.ErrNoTransaction, got %v", name, err)
		}
		must(t, tx.Rollback())
	}
}

func TestOperate_NamesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{})
	enqueue(t, store, event("e1", "a"))
	for name, operate := range map[string]func(...string) error{
		"requeue": store.Requeue, "delete": store.Delete, "restart": store.Restart,
	} {
		if err := operate("e1", "e2"); err == nil || !strings.Contains(err.Error(), `"e2"`) {
			t.Errorf("%s of an unknown event: %v", name, err)
		}
	}
	if row, found := store.Row("e1"); !found || row.Replay != 0 {
		t.Errorf("a refused call changed the row of e1: %+v", row)
	}
	enqueue(t, store, event("e3", "a"))
	must(t, store.Delete("e1", "e1"))
	if rows := store.Rows(); len(rows) != 1 || rows[0].EventID != "e3" {
		t.Errorf("rows after the delete: %+v", rows)
	}
	if records := fetch(t, store, request("m", take(t, store, "m"))); !slices.Equal(eventIDs(records), []string{"e3"}) {
		t.Errorf("fetched after the delete: %v", eventIDs(records))
	}
}

func TestDelete_OfALateCommit(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{Lanes: 1})
	leases := take(t, store, "m")
	late := store.Begin()
	_, err := late.Enqueue(t.Context(), event("late", "a"), event("later", "a"))
	must(t, err)
	enqueue(t, store, event("early", "b"))
	fetch(t, store, request("m", leases))
	must(t, late.Commit())
	must(t, store.Delete("late"))
	if records := fetch(t, store, request("m", leases)); !slices.Equal(eventIDs(records), []string{"later"}) {
		t.Errorf("fetched %v, want the late commit that was not deleted", eventIDs(records))
	}
}
