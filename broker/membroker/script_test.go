package membroker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

var errRefused = &core.PublishError{Class: core.ClassTransient, Scope: core.ScopeMessage, Code: "REFUSED"}

// Each plan hits one call with the messages a-1 a-2 b-1 a-3.
func TestPlan_SaysWhatIsStoredAndWhatIsReported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		plan      membroker.Plan
		guarantee core.KeyGuarantee
		results   string
		stored    string
	}{
		{"Deliver", membroker.Deliver(), core.PrefixPerKey, "delivered delivered delivered delivered", "a-1 a-2 b-1 a-3"},
		{"Reject one", membroker.Reject(errRefused, 1), core.PrefixPerKey, "delivered rejected delivered skipped", "a-1 b-1"},
		{"Reject one", membroker.Reject(errRefused, 1), core.OnePerKey, "delivered rejected delivered delivered", "a-1 b-1 a-3"},
		{"Reject all", membroker.Reject(errRefused), core.PrefixPerKey, "rejected rejected rejected rejected", ""},
		{"RejectEvents", membroker.RejectEvents(errRefused, "b-1"), core.PrefixPerKey, "delivered delivered rejected delivered", "a-1 a-2 a-3"},
		{"LoseReply of one", membroker.LoseReply(0), core.PrefixPerKey, "unknown unknown delivered unknown", "a-1 a-2 b-1 a-3"},
		{"LoseReply of one", membroker.LoseReply(0), core.OnePerKey, "unknown delivered delivered delivered", "a-1 a-2 b-1 a-3"},
		{"LoseReply of all", membroker.LoseReply(), core.PrefixPerKey, "unknown unknown unknown unknown", "a-1 a-2 b-1 a-3"},
		{"LoseRequest of one", membroker.LoseRequest(1), core.PrefixPerKey, "delivered unknown delivered skipped", "a-1 b-1"},
		{"LoseRequest of all", membroker.LoseRequest(), core.PrefixPerKey, "unknown unknown unknown unknown", ""},
		{"LandLate of one", membroker.LandLate(1), core.PrefixPerKey, "delivered unknown delivered skipped", "a-1 b-1"},
		{"Throttle", membroker.Throttle(time.Second), core.PrefixPerKey, "rejected rejected rejected rejected", ""},
		{"DestinationDown", membroker.DestinationDown(), core.OnePerKey, "rejected rejected rejected rejected", ""},
		{"an error is never a success", membroker.Plan{Fate: func(int, core.Prepared) membroker.Fate {
			return membroker.Fate{Err: errRefused, Outcome: core.OutcomeDelivered}
		}}, core.OnePerKey, "unknown unknown unknown unknown", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := membroker.New(membroker.Config{KeyGuarantee: c.guarantee, Script: membroker.Calls(c.plan)})
			batch := []*core.Record{record("a", 1), record("a", 2), record("b", 1), record("a", 3)}
			want(t, "results", outcomes(publish(t.Context(), t, b, batch...)), c.results)
			want(t, "log", log(b), c.stored)
		})
	}
}

func TestPlan_ErrorsTellClassScopeAndDestination(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan  membroker.Plan
		class core.Class
		scope core.Scope
		retry time.Duration
		text  string
	}{
		{membroker.Reject(errRefused), core.ClassTransient, core.ScopeMessage, 0, "REFUSED"},
		{
			membroker.Throttle(3 * time.Second), core.ClassThrottled, core.ScopeDestination, 3 * time.Second,
			`THROTTLED: membroker: destination "orders" is used too fast`,
		},
		{
			membroker.DestinationDown(), core.ClassUnavailable, core.ScopeDestination, 0,
			`DESTINATION_DOWN: membroker: destination "orders" is unavailable`,
		},
		{
			membroker.BrokerDown(), core.ClassUnavailable, core.ScopeBroker, 0,
			`BROKER_DOWN: membroker: destination "orders" cannot be reached: the broker is down`,
		},
		{
			membroker.Misconfigured(), core.ClassMisconfigured, core.ScopeDestination, 0,
			`UNKNOWN_DESTINATION: membroker: destination "orders" does not exist: create it`,
		},
		{
			membroker.LoseReply(), core.ClassTransient, core.ScopeDestination, 0,
			`NO_REPLY: membroker: the reply was lost`,
		},
	} {
		b := membroker.New(membroker.Config{Script: membroker.Always(c.plan)})
		err := publish(t.Context(), t, b, record("a", 1))[0].Err
		var e *core.PublishError
		if !errors.As(err, &e) {
			t.Fatalf("no PublishError in %v", err)
		}
		if e.Class != c.class || e.Scope != c.scope || e.RetryAfter != c.retry {
			t.Errorf("%s: %v, %v, %v; want %v, %v, %v", e.Code, e.Class, e.Scope, e.RetryAfter, c.class, c.scope, c.retry)
		}
		want(t, "text", err.Error(), c.text)
	}
}

func TestScripts_ChooseThePlan(t *testing.T) {
	t.Parallel()
	b := membroker.New(membroker.Config{
		Script: membroker.On("orders", membroker.Calls(membroker.Deliver(), membroker.Reject(errRefused))),
	})
	other := record("x", 1)
	other.Topic = "payments"
	want(t, "another topic", outcomes(publish(t.Context(), t, b, other)), "delivered")
	want(t, "first call", outcomes(publish(t.Context(), t, b, record("a", 1))), "delivered")
	want(t, "second call", outcomes(publish(t.Context(), t, b, record("a", 2))), "rejected")
	want(t, "third call", outcomes(publish(t.Context(), t, b, record("a", 2))), "delivered")
	b.SetScript(membroker.Always(membroker.LoseRequest()))
	want(t, "another script", outcomes(publish(t.Context(), t, b, record("a", 3))), "unknown")
	b.SetScript(nil)
	want(t, "no script", outcomes(publish(t.Context(), t, b, record("a", 3))), "delivered")
}

func TestLandLate_LandsAtTheLatestMomentAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		then func(context.Context, *testing.T, *membroker.Broker)
		want string
	}{
		{"another key", func(ctx context.Context, t *testing.T, b *membroker.Broker) {
			t.Helper()
			publish(ctx, t, b, record("b", 1))
		}, "b-1"},
		{"the next call of its key", func(ctx context.Context, t *testing.T, b *membroker.Broker) {
			t.Helper()
			publish(ctx, t, b, record("a", 3))
		}, "a-1 a-2 a-3"},
		{"Land", func(_ context.Context, _ *testing.T, b *membroker.Broker) { b.Land(); b.Land() }, "a-1 a-2"},
		{"Close", func(ctx context.Context, _ *testing.T, b *membroker.Broker) { _ = b.Close(ctx) }, "a-1 a-2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := membroker.New(membroker.Config{
				KeyGuarantee: core.PrefixPerKey, Script: membroker.Calls(membroker.LandLate()),
			})
			want(t, "results", outcomes(publish(t.Context(), t, b, record("a", 1), record("a", 2))), "unknown unknown")
			want(t, "log after the call", log(b), "")
			c.then(t.Context(), t, b)
			want(t, "log in the end", log(b), c.want)
		})
	}
}

func TestWaits_EndWithTheContext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		plan    membroker.Plan
		timeout time.Duration
		took    time.Duration
		results string
		stored  string
	}{
		{"latency", membroker.Deliver().After(time.Second), time.Minute, time.Second, "delivered", "a-1"},
		{"too much latency", membroker.Deliver().After(time.Hour), time.Minute, time.Minute, "unknown", ""},
		{"slow reply", membroker.Deliver().ReplyAfter(time.Second), time.Minute, time.Second, "delivered", "a-1"},
		{"no reply in time", membroker.Deliver().ReplyAfter(time.Hour), time.Minute, time.Minute, "unknown", "a-1"},
		{"slow refusal", membroker.Reject(errRefused).After(time.Second), time.Minute, time.Second, "rejected", ""},
		{"hang", membroker.Hang(), time.Minute, time.Minute, "unknown", ""},
		{"hang with the reply", membroker.HangReply(), time.Minute, time.Minute, "unknown", "a-1"},
		{"context over", membroker.Deliver(), 0, 0, "skipped", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Script: membroker.Always(c.plan)})
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				start := time.Now()
				want(t, "results", outcomes(publish(ctx, t, b, record("a", 1))), c.results)
				want(t, "log", log(b), c.stored)
				if took := time.Since(start); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
			})
		})
	}
}

func TestHold_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Script: membroker.Always(membroker.Hold(make(chan struct{})))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		want(t, "results", outcomes(publish(ctx, t, b, record("a", 1))), "unknown")
		want(t, "log", log(b), "")
	})
}

func TestHold_EndsWithItsRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, done := make(chan struct{}), make(chan []core.Result)
		b := membroker.New(membroker.Config{Script: membroker.Always(membroker.Hold(release))})
		batch := prepare(t, b, record("a", 1))
		go func() { done <- b.PublishBatch(t.Context(), batch) }()
		synctest.Wait()
		want(t, "log while held", log(b), "")
		close(release)
		want(t, "results", outcomes(<-done), "delivered")
	})
}

func TestPanic_LeavesTheBrokerUsable(t *testing.T) {
	t.Parallel()
	b := membroker.New(membroker.Config{Script: membroker.Calls(membroker.Panic("boom"))})
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v, want boom", got)
			}
		}()
		publish(t.Context(), t, b, record("a", 1))
	}()
	want(t, "next call", outcomes(publish(t.Context(), t, b, record("a", 1))), "delivered")
	if err := errors.Join(b.Misuse(), b.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestFaults_HitTheNextCalls(t *testing.T) {
	t.Parallel()
	var faults membroker.Faults
	b := membroker.New(membroker.Config{Script: faults.Script})
	call := func() string { return outcomes(publish(t.Context(), t, b, record("a", 1), record("b", 1))) }

	want(t, "no fault", call(), "delivered delivered")
	faults.Refuse(2)
	want(t, "Refuse", call(), "rejected rejected")
	faults.Refuse(0)
	want(t, "Refuse ended", call(), "delivered delivered")
	faults.RefuseMessage(1)
	want(t, "RefuseMessage", call(), "delivered rejected")
	want(t, "RefuseMessage once", call(), "delivered delivered")
	faults.LoseReply(1)
	want(t, "LoseReply", call(), "unknown unknown")
	want(t, "LoseReply once", call(), "delivered delivered")

	caught, release := faults.Hang()
	done, batch := make(chan []core.Result), prepare(t, b, record("a", 2))
	go func() { done <- b.PublishBatch(t.Context(), batch) }()
	<-caught
	release()
	release()
	want(t, "Hang", outcomes(<-done), "delivered")
	want(t, "Hang released", call(), "delivered delivered")
}
