package notify_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
)

func TestWebhook_TellsOnlyPausesThatLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		hook, stop := start(t, r, notify.Config{PausedFor: 5 * time.Minute})
		pause := core.PauseEvent{Destination: "orders", Failures: 1, Err: errors.New("kafka: not authorised")}
		resume := core.ResumeEvent{Destination: "orders"}
		hook.Observe(pause)
		advance(t, 4*time.Minute)
		hook.Observe(resume)
		advance(t, time.Hour)
		if got := r.messages(); len(got) != 0 {
			t.Fatalf("a short pause was told: %+v", got)
		}
		begin := time.Now()
		for range 20 { // each failed try is one more event
			hook.Observe(pause)
			advance(t, time.Minute)
		}
		hook.Observe(core.ResumeEvent{Destination: "others"})
		synctest.Wait()
		got := r.messages()
		if len(got) != 1 || got[0].Type != "outbox.paused" || got[0].at.Sub(begin) != 5*time.Minute {
			t.Fatalf("a pause of 20 minutes: %+v; want one message after 5", got)
		}
		if !strings.Contains(got[0].Data.Summary, "destination orders") || got[0].Data.Reason != "kafka: not authorised" {
			t.Errorf("got %+v", got[0].Data)
		}
		hook.Observe(resume)
		synctest.Wait()
		if got := r.messages(); len(got) != 2 || got[1].Type != "outbox.resumed" {
			t.Fatalf("after it works again: %+v", got)
		}
		hook.Observe(resume)
		stop()
		if n := len(r.messages()); n != 2 {
			t.Errorf("%d messages, want 2", n)
		}
	})
}

// Events that block and destinations that are halted are told at once; the end of a halt is told, too.
func TestWebhook_TellsOfBlocksAndHalts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		hook, stop := start(t, r, notify.Config{})
		hook.Observe(core.BlockEvent{Record: record("orders", "e1"), Attempts: 10, Reason: "rejected"})
		synctest.Wait()
		hook.Observe(core.HaltEvent{Destination: "orders", Record: record("orders", "e1")})
		synctest.Wait()
		hook.Observe(core.HaltEvent{Destination: "orders", Record: record("orders", "e2")}) // nothing new
		synctest.Wait()
		hook.Observe(core.ResumeEvent{Destination: "orders"})
		synctest.Wait()
		want := []string{
			"outbox: event e1 of order ord_1 blocks its aggregate, topic orders: rejected",
			"outbox: destination orders is halted by event e1 of order ord_1, which is blocked",
			"outbox: destination orders works again, it was halted since 2000-01-01T00:00:00Z",
		}
		got := r.messages()
		if len(got) != len(want) {
			t.Fatalf("got %+v", got)
		}
		for i, m := range got {
			if m.Data.Summary != want[i] {
				t.Errorf("message %d is %q, want %q", i, m.Data.Summary, want[i])
			}
		}
		stop()
	})
}

// The destination works again in the very moment in which its pause is told: its end is told too.
func TestWebhook_TellsTheEndOfAPauseThatWasBeingTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, release := make(chan struct{}), make(chan struct{})
		r := &receiver{answer: func(n int) error {
			if n == 1 {
				close(asked)
				<-release
			}
			return nil
		}}
		hook, stop := start(t, r, notify.Config{})
		hook.Observe(core.PauseEvent{})
		<-asked
		hook.Observe(core.ResumeEvent{})
		close(release)
		synctest.Wait()
		if got := r.messages(); len(got) != 2 || got[1].Type != "outbox.resumed" {
			t.Errorf("got %+v; want paused, resumed", got)
		}
		stop()
	})
}

// When the pause could not be told, neither need its end be.
func TestWebhook_TellsNoEndOfWhatWasNotTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(int) error { return errStatus }}
		hook, stop := start(t, r, notify.Config{})
		hook.Observe(core.PauseEvent{})
		advance(t, 6*time.Minute)
		synctest.Wait()
		tries := len(r.messages())
		hook.Observe(core.ResumeEvent{})
		advance(t, time.Hour)
		stop()
		if n := len(r.messages()); tries == 0 || n != tries {
			t.Errorf("%d messages before the end of the pause, %d after it", tries, n)
		}
	})
}
