package notify_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
	"github.com/go-outbox/outbox/store/memstore"
)

// A storm of parked events is two messages: the first at once, and one that says how many more there were.
func TestWebhook_CountsWhatFollowsWithinTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		hook, stop := start(t, r, notify.Config{MinInterval: time.Minute})
		begin := time.Now()
		hook.Observe(park("orders", "e0"))
		synctest.Wait()
		for i := 1; i < 100; i++ {
			hook.Observe(park("orders", fmt.Sprint("e", i)))
		}
		hook.Observe(park("invoices", "i0"))
		synctest.Wait()
		if got := r.messages(); len(got) != 2 || got[0].Data.EventID != "e0" || got[1].Data.Topic != "invoices" {
			t.Fatalf("at once: %+v; want the first of each topic", got)
		}
		advance(t, 59*time.Second)
		synctest.Wait()
		if n := len(r.messages()); n != 2 {
			t.Fatalf("%d messages within the interval, want 2", n)
		}
		advance(t, time.Second)
		synctest.Wait()
		got := r.messages()
		if len(got) != 3 || got[2].Data.LeftOut != 98 || got[2].Data.EventID != "e99" || got[2].at.Sub(begin) != time.Minute {
			t.Fatalf("after the interval: %+v; want the last with 98 more", got)
		}
		if !strings.Contains(got[2].Data.Summary, "98 more") {
			t.Errorf("the summary is %q", got[2].Data.Summary)
		}
		advance(t, time.Hour)
		hook.Observe(park("orders", "e100"))
		synctest.Wait()
		if got := r.messages(); len(got) != 4 || got[3].Data.LeftOut != 0 {
			t.Errorf("an hour later: %+v; want one message at once", got)
		}
		stop()
	})
}

func TestWebhook_FailedMessageIsTriedAgainWithWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(n int) error {
			return []error{errors.New("no route"), errStatus, nil, nil}[n-1]
		}}
		log, said := logged()
		hook, stop := start(t, r, notify.Config{Logger: log, Secret: secret})
		hook.Observe(park("orders", "e1"))
		synctest.Wait()
		hook.Observe(park("orders", "e2"))
		advance(t, 5*time.Minute)
		synctest.Wait()
		got := r.messages()
		if len(got) != 3 || got[2].Data.LeftOut != 1 || got[2].Data.EventID != "e2" {
			t.Fatalf("got %+v; want e2 with one more at the third try", got)
		}
		if text := said(); !strings.Contains(text, "no route") || !strings.Contains(text, "500") {
			t.Errorf("the log is %s", text)
		}
		hook.Observe(park("orders", "e3"))
		advance(t, 5*time.Minute)
		synctest.Wait()
		if got := r.messages(); len(got) != 4 || got[3].Data.LeftOut != 0 {
			t.Errorf("got %+v; want e3 alone", got)
		}
		stop()
	})
}

func TestWebhook_ObserveDoesNotWaitForAReceiverThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &receiver{answer: func(n int) error {
			if n == 1 {
				<-release
			}
			return nil
		}}
		hook, stop := start(t, r, notify.Config{MinInterval: time.Minute})
		for i := range 10_000 { // in this goroutine: it would hang here
			hook.Observe(park("orders", fmt.Sprint("e", i)))
			if i == 0 {
				synctest.Wait()
			}
		}
		close(release)
		advance(t, 2*time.Minute)
		synctest.Wait()
		if got := r.messages(); len(got) != 2 || got[1].Data.LeftOut != 9_998 {
			t.Errorf("got %+v; want a second message with 9,998 more", got)
		}
		stop()
	})
}

// Topics beyond the memory are told together: nothing is silent.
func TestWebhook_TellsOfEveryEventOfManyTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		hook, stop := start(t, r, notify.Config{})
		for i := range 1000 {
			hook.Observe(park(fmt.Sprint("topic", i), "e"))
		}
		advance(t, time.Hour)
		told, many := 0, 0
		for _, m := range r.messages() {
			told += 1 + m.Data.LeftOut
			if m.Data.Topic == "" {
				many++
			}
		}
		if told != 1000 || many == 0 || many > 2 {
			t.Errorf("%d of 1000 were told; %d messages were of further topics", told, many)
		}
		hook.Observe(park("one more", "e"))
		synctest.Wait()
		if got := r.messages(); got[len(got)-1].Data.Topic != "one more" {
			t.Errorf("later there is no room: %+v", got[len(got)-1])
		}
		stop()
	})
}

// A try again that fails comes later and later, not in a loop.
func TestWebhook_TriesAgainAreFewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(int) error { return errStatus }}
		hook, stop := start(t, r, notify.Config{MinInterval: time.Minute})
		hook.Observe(park("orders", "e1"))
		advance(t, time.Hour)
		stop()
		if n := len(r.messages()); n < 30 || n > 400 { // every half a minute on the average
			t.Errorf("%d tries within an hour", n)
		}
	})
}

func TestWebhook_EndTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		log, said := logged()
		hook, stop := start(t, r, notify.Config{Logger: log, Secret: secret})
		for i := range 3 {
			hook.Observe(park("orders", fmt.Sprint("e", i)))
			synctest.Wait()
		}
		hook.Observe(core.PauseEvent{}) // just begun: no matter
		stop()
		if got := r.messages(); len(got) != 2 || got[1].Data.LeftOut != 1 {
			t.Errorf("got %+v; want the other two at the end", got)
		}
		if said() != "" {
			t.Errorf("the log is %s", said())
		}
	})
}

// The receiver is restarted just when Run ends: what was reported before is told nevertheless.
func TestWebhook_EndTriesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(n int) error {
			if n <= 4 {
				return errors.New("connection refused")
			}
			return nil
		}}
		hook, stop := start(t, r, notify.Config{MinInterval: time.Hour})
		hook.Observe(core.HaltEvent{Destination: "orders", Record: record("orders", "e1")})
		synctest.Wait() // it fails, and waits for another try
		hook.Observe(park("orders", "e2"))
		begin := time.Now()
		stop()
		told := map[string]int{}
		for _, m := range r.messages()[4:] {
			told[m.Type]++
		}
		if len(told) != 2 || told["outbox.halted"] != 1 || told["outbox.parked"] != 1 {
			t.Errorf("told at the end: %v; want both, once", told)
		}
		if took := time.Since(begin); took > notify.DefaultTimeout {
			t.Errorf("the end took %v", took)
		}
	})
}

// What is being sent when Run ends is not cut off, nor is it sent again.
func TestWebhook_EndWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{wait: 3 * time.Second}
		log, said := logged()
		hook, stop := start(t, r, notify.Config{Logger: log, Secret: secret})
		hook.Observe(park("orders", "e1"))
		synctest.Wait()
		stop()
		if n := len(r.messages()); n != 1 || said() != "" {
			t.Errorf("%d messages, want 1; the log is %s", n, said())
		}
	})
}

// However slow the receiver is, Run ends in time.
func TestWebhook_EndIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{wait: time.Hour}
		hook, stop := start(t, r, notify.Config{Timeout: 7 * time.Second})
		hook.Observe(park("orders", "e1"))
		advance(t, 5*time.Second)
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("the end took %v, want 7s", took)
		}
	})
}

// Messages that anybody could have sent are worth a word, once.
func TestWebhook_WarnsWhenItDoesNotSign(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cfg  notify.Config
		want int
	}{
		{notify.Config{}, 1},
		{notify.Config{Secret: secret}, 0},
		{notify.Config{Format: notify.Slack}, 0},
		{notify.Config{Format: notify.PagerDuty, Secret: "key"}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, said := logged()
			test.cfg.Logger = log
			hook, stop := start(t, &receiver{}, test.cfg)
			for i := range 3 {
				hook.Observe(park(fmt.Sprint("topic", i), "e1"))
			}
			stop()
			if n := strings.Count(said(), "not signed"); n != test.want || strings.Contains(said(), "token") {
				t.Errorf("%+v: said %d times, want %d: %s", test.cfg, n, test.want, said())
			}
		})
	}
}

func TestWebhook_EndLogsWhatNobodyWasTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(int) error { return errStatus }}
		log, said := logged()
		hook, stop := start(t, r, notify.Config{Logger: log, Secret: secret})
		for i := range 3 {
			hook.Observe(park("orders", fmt.Sprint("e", i)))
		}
		stop()
		if text := said(); !strings.Contains(text, "nobody was told") || !strings.Contains(text, `"events":3`) {
			t.Errorf("the log is %s", text)
		}
	})
}

func TestWebhook_RunIsCalledOnce(t *testing.T) {
	t.Parallel()
	hook, stop := start(t, &receiver{}, notify.Config{})
	stop()
	if err := hook.Run(t.Context()); err == nil {
		t.Error("a second Run: no error")
	}
}

// A dispatcher parks what the broker refuses, and a person hears of it.
func TestWebhook_ObservesADispatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		hook, stop := start(t, r, notify.Config{})
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		tx := store.Begin()
		m := record("orders", "e1").Message
		m.Headers, m.Payload = nil, []byte(strings.Repeat("x", 5000))
		if _, err := tx.Enqueue(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		d, err := core.NewDispatcher(store, membroker.New(membroker.Config{MaxMessageBytes: 1000}),
			core.Config{Observer: hook, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		got := r.messages()
		if len(got) != 1 || got[0].Type != "outbox.parked" || got[0].Data.EventID != "e1" || !strings.Contains(got[0].Data.Reason, "1000") {
			t.Errorf("got %+v; want that e1 is parked, and the limit", got)
		}
	})
}
