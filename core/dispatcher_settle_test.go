package core_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// unsettling is a store that refuses some settles.
type unsettling struct {
	*memstore.Store
	refuses func(core.Settlement) bool
}

var errRaised = errors.New("raised by a trigger")

func (u *unsettling) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	if u.refuses(req) {
		return core.Settled{}, errRaised
	}
	return u.Store.Settle(ctx, req)
}

// One row that cannot be settled holds up no other, and is named.
func TestDispatcher_ARowThatCannotBeSettledIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		var text lockedText
		s.cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		s.enqueue("orders", 300, 30)
		d, stop := s.run(&unsettling{s.store, func(req core.Settlement) bool {
			return slices.ContainsFunc(req.Items, func(i core.SettleItem) bool { return i.Record.EventID == "orders/a7/3" })
		}}, s.broker)
		wait(3 * time.Minute)
		for _, row := range s.store.Rows() {
			if (row.State == memstore.Published) == (row.EventID == "orders/a7/3") {
				t.Errorf("%s is %s", row.EventID, row.State)
			}
		}
		const name = `event "orders/a7/3", id `
		if h := d.Health(); h.Ready || !strings.Contains(h.Reason, name) || !strings.Contains(h.Reason, errRaised.Error()) {
			t.Errorf("health: %+v", h)
		}
		if log := text.String(); !strings.Contains(strings.ReplaceAll(log, `\`, ""), name) {
			t.Errorf("the log does not name it:\n%s", log)
		}
		if err := stop(); !errors.Is(err, core.ErrShutdownTimeout) {
			t.Errorf("stopped with %v", err)
		}
	})
}

// A database that came back is one thing to tell, however many lanes there are.
func TestDispatcher_TellsOnceThatTheStoreWasReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 16}, membroker.Config{})
		var text lockedText
		s.cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		s.enqueue("orders", 100, 50)
		_, stop := s.start()
		wait(time.Second)
		if err := s.store.Restart(); err != nil {
			t.Fatal(err)
		}
		s.enqueue("orders", 100, 50)
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := strings.Count(text.String(), "the store was replaced"); got != 1 {
			t.Errorf("told %d times", got)
		}
	})
}

// While nothing can be settled no event is to blame, and it is told once.
func TestDispatcher_AnOutageOfTheStoreNamesNoEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		var text lockedText
		s.cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		s.enqueue("orders", 300, 30)
		until := time.Now().Add(5 * time.Minute)
		_, stop := s.run(&unsettling{s.store, func(core.Settlement) bool { return time.Now().Before(until) }}, s.broker)
		wait(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		s.unharmed()
		if got := strings.Count(text.String(), "settle fails"); got != 1 || strings.Contains(text.String(), "event ") {
			t.Errorf("told %d times:\n%s", got, text.String())
		}
	})
}
