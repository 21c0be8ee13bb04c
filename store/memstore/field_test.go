package memstore_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// 2,000 transactions commit late, in any order, while a dispatcher publishes and deletes what it finds: a row must not
// go before it was published, nor stay behind because a fetch had found nothing yet.
func TestField_036_LateRowsAreNeitherDeletedNorSkipped(t *testing.T) {
	t.Parallel()
	const writers, transactions, events = 4, 500, 3
	store := open(t, memstore.Config{AfterPublish: memstore.Delete})
	leases := take(t, store, "m")
	ctx := t.Context()
	errs := make([]error, writers)
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			var late []*memstore.Tx
			for n := range transactions {
				tx := store.Begin()
				for e := range events {
					_, err := tx.Enqueue(ctx, event(fmt.Sprintf("%d.%d.%d", w, n, e), fmt.Sprint("a", n%7)))
					errs[w] = errors.Join(errs[w], err)
				}
				if late = append(late, tx); len(late) == 5 {
					slices.Reverse(late)
					errs[w] = errors.Join(errs[w], commitAll(late)) //nolint:contextcheck // a commit takes none
					late = nil
				}
			}
			errs[w] = errors.Join(errs[w], commitAll(late)) //nolint:contextcheck // a commit takes none
		})
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		writing.Wait()
	}()

	delivered := map[string]int{}
	for done := false; ; {
		select {
		case <-written:
			done = true
		default:
		}
		records := fetch(t, store, request("m", leases))
		if done && len(records) == 0 {
			break
		}
		for _, r := range records {
			delivered[r.EventID]++
		}
		if settled := settle(t, store, "m", leases, publishedAll(records)...); len(settled.Missed) > 0 {
			t.Fatalf("missed %v", eventIDs(settled.Missed))
		}
	}
	must(t, errors.Join(errs...))
	if len(delivered) != writers*transactions*events {
		t.Errorf("%d of %d events were delivered", len(delivered), writers*transactions*events)
	}
	for id, n := range delivered {
		if n != 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
	if rows := store.Rows(); len(rows) != 0 {
		t.Errorf("%d rows are left", len(rows))
	}
}

func commitAll(late []*memstore.Tx) error {
	var faults []error
	for _, tx := range late {
		faults = append(faults, tx.Commit())
	}
	return errors.Join(faults...)
}

// Ten records are settled, three of them were requeued meanwhile: seven are written without an error, three come again.
func TestField_129_FewerRowsThanSelectedIsNoError(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{})
	leases := take(t, store, "m")
	for n := range 10 {
		enqueue(t, store, event(fmt.Sprint("e", n), "a"))
	}
	records := fetch(t, store, request("m", leases))
	must(t, store.Requeue("e2", "e5", "e7"))
	settled := settle(t, store, "m", leases, publishedAll(records)...)
	want := []string{"e2", "e5", "e7"}
	if len(settled.Refused) > 0 || !slices.Equal(eventIDs(settled.Missed), want) {
		t.Fatalf("refused lanes %v, missed %v; want only %v missed", settled.Refused, eventIDs(settled.Missed), want)
	}
	req := request("m", leases)
	for i := range req.Lanes {
		req.Lanes[i].RewindFrom = settled.Missed[0].ID // as the dispatcher does for what it missed
	}
	if again := fetch(t, store, req); !slices.Equal(eventIDs(again), want) {
		t.Errorf("next time came %v, want %v", eventIDs(again), want)
	}
}

func TestField_134_NilAndEmptyPayloadsDiffer(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{})
	payloads := map[string][]byte{
		"nil": nil, "zero bytes": {}, "null": []byte("null"), "object": []byte("{}"), "quotes": []byte(`""`), "space": []byte(" "),
	}
	for id, payload := range payloads {
		m := event(id, "a")
		m.Payload = payload
		enqueue(t, store, m)
	}
	records := fetch(t, store, request("m", take(t, store, "m")))
	if len(records) != len(payloads) {
		t.Fatalf("%d of %d events came", len(records), len(payloads))
	}
	for _, r := range records {
		want := payloads[r.EventID]
		if !slices.Equal(r.Payload, want) || (r.Payload == nil) != (want == nil) {
			t.Errorf("%s came back as %q (nil: %t)", r.EventID, r.Payload, r.Payload == nil)
		}
	}
}

func TestField_144_EmptyHeaderValuesAreKept(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{})
	want := map[string]string{"empty": "", "space": " ", "long": strings.Repeat("x", 5000), "newline": "a\r\nb\n"}
	m := event("e1", "a")
	m.Headers = maps.Clone(want)
	enqueue(t, store, m)
	records := fetch(t, store, request("m", take(t, store, "m")))
	if len(records) != 1 || !maps.Equal(records[0].Headers, want) {
		t.Errorf("want one record with the headers %q, got %v", want, records)
	}
	settled := settle(t, store, "m", take(t, store, "m"), core.SettleItem{Record: records[0], Status: core.StatusPublished})
	if len(settled.Missed) > 0 {
		t.Error("it could not be settled")
	}
}
