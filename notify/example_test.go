package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
	"github.com/go-outbox/outbox/store/memstore"
)

// receive is a receiver, which checks the signature before it believes a message.
func receive(secret string, say func(what, summary string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "cannot be read", http.StatusBadRequest)
			return
		}
		if err := notify.Verify(r.Header, body, secret, 5*time.Minute); err != nil {
			http.Error(w, "not signed", http.StatusUnauthorized)
			return
		}
		var message struct {
			Type string
			Data struct{ Summary string }
		}
		if err := json.Unmarshal(body, &message); err != nil {
			http.Error(w, "not JSON", http.StatusBadRequest)
			return
		}
		say(message.Type, message.Data.Summary)
	})
}

// The broker refuses an event: the dispatcher parks it, and the webhook says so.
func Example() {
	ctx := context.Background()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	server := httptest.NewServer(receive(secret, func(what, summary string) { fmt.Println(what, "-", summary) }))
	defer server.Close()

	hook, err := notify.New(notify.Config{URL: notify.URL(server.URL), Secret: secret, Name: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	telling, stop := context.WithCancel(ctx)
	told := make(chan error, 1)
	go func() { told <- hook.Run(telling) }()
	defer stop()

	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tx := store.Begin()
	if _, err := tx.Enqueue(ctx, core.Message{
		EventID: "evt_1", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created", Payload: make([]byte, 2000),
	}); err != nil {
		fmt.Println(err)
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	dispatcher, err := core.NewDispatcher(store, membroker.New(membroker.Config{MaxMessageBytes: 1000}), core.Config{
		Observer: hook, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := dispatcher.RunOnce(ctx); err != nil {
		fmt.Println(err)
		return
	}
	stop() // after the dispatcher, so that its last words are told
	fmt.Println(<-told)
	// Output:
	// outbox.parked - shop: event evt_1 of order ord_1 is parked, topic order: MESSAGE_TOO_LARGE: membroker: event "evt_1" has 2033 bytes, the limit MaxMessageBytes is 1000
	// <nil>
}

// A channel of Slack is told; its URL is all it takes.
func ExampleNew_slack() {
	hook, err := notify.New(notify.Config{
		URL:         "https://hooks.slack.com/services/T000/B000/XXXX",
		Format:      notify.Slack,
		Name:        "shop",
		MinInterval: 5 * time.Minute,
	})
	fmt.Println(hook != nil, err)
	// Output: true <nil>
}

// Whoever is on call is paged. The incident is resolved when what was paused works again.
func ExampleNew_pagerDuty() {
	hook, err := notify.New(notify.Config{
		Format:    notify.PagerDuty,
		Secret:    "the integration key of the service",
		Name:      "shop",
		PausedFor: 10 * time.Minute,
	})
	fmt.Println(hook != nil, err)
	// Output: true <nil>
}
