package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
)

// request is what a server got.
type request struct {
	header http.Header
	body   []byte
}

// tell lets a webhook tell a real server of events, and returns the requests. All is told by the end of Run.
func tell(t *testing.T, cfg notify.Config, events ...core.Event) []request {
	t.Helper()
	var got []request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s with %s", r.Method, r.Header.Get("Content-Type"))
		}
		got = append(got, request{r.Header, body}) // one after the other
	}))
	defer server.Close()
	cfg.URL, cfg.Logger = notify.URL(server.URL+"/services/TOKEN"), slog.New(slog.DiscardHandler)
	hook, err := notify.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		hook.Observe(e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hook.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestGeneric_IsSignedAndShowsNoPayload(t *testing.T) {
	t.Parallel()
	got := tell(t, notify.Config{Secret: secret, Name: "shop"}, park("orders", "e1"))
	if len(got) != 1 {
		t.Fatalf("%d requests", len(got))
	}
	if err := notify.Verify(got[0].header, got[0].body, secret, time.Minute); err != nil {
		t.Error(err)
	}
	var m struct {
		Type      string
		Timestamp time.Time
		Data      map[string]any
	}
	if err := json.Unmarshal(got[0].body, &m); err != nil {
		t.Fatal(err)
	}
	if m.Type != "outbox.parked" || time.Since(m.Timestamp).Abs() > time.Minute {
		t.Errorf("got %+v", m)
	}
	for field, want := range map[string]any{
		"outbox": "shop", "topic": "orders", "event_id": "e1", "outbox_id": 7.0, "aggregate_type": "order",
		"aggregate_id": "ord_1", "event_type": "order.created", "attempts": 10.0, "left_out": 0.0,
		"reason":  "kafka: topic orders: too large",
		"summary": "shop: event e1 of order ord_1 is parked, topic orders: kafka: topic orders: too large",
	} {
		if m.Data[field] != want {
			t.Errorf("%s is %v, want %v", field, m.Data[field], want)
		}
	}
	wantNone(t, "the body", string(got[0].body), "PAYLOAD", "HEADER", "TOKEN", secret)
}

func TestSlack_IsALineOfText(t *testing.T) {
	t.Parallel()
	e := park("orders", "e1")
	e.Reason = "<!channel> a & b\nline \x1b[31m" + strings.Repeat("ö", 5000)
	got := tell(t, notify.Config{Format: notify.Slack}, e)
	var m map[string]string
	if err := json.Unmarshal(got[0].body, &m); err != nil || len(m) != 1 {
		t.Fatalf("%s: %v", got[0].body, err)
	}
	want := "outbox: event e1 of order ord_1 is parked, topic orders: &lt;!channel&gt; a &amp; b line  [31m"
	if !strings.HasPrefix(m["text"], want) || !strings.HasSuffix(m["text"], "...") || len(m["text"]) > 1100 {
		t.Errorf("%d bytes: %q", len(m["text"]), m["text"])
	}
}

func TestPagerDuty_OneIncidentForAnAlert(t *testing.T) {
	t.Parallel()
	type event struct {
		RoutingKey string `json:"routing_key"`
		Action     string `json:"event_action"`
		DedupKey   string `json:"dedup_key"`
		Payload    struct {
			Summary, Source, Severity, Component, Class string
			Details                                     map[string]any `json:"custom_details"`
		}
	}
	read := func(r request) (e event) {
		t.Helper()
		if err := json.Unmarshal(r.body, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	cfg := notify.Config{Format: notify.PagerDuty, Secret: "integration-key", Name: "shop"}
	e := read(tell(t, cfg, park("orders", "e1"), park("orders", "e2"))[0])
	p := e.Payload
	if e.RoutingKey != "integration-key" || e.Action != "trigger" || e.DedupKey != "shop/parked/orders//" ||
		p.Source != "shop" || p.Severity != "error" || p.Component != "orders" || p.Class != "parked" ||
		p.Details["event_id"] != "e2" || p.Details["left_out"] != 1.0 || !strings.HasSuffix(p.Summary, "(and 1 more)") {
		t.Errorf("got %+v", e)
	}
	long := read(tell(t, cfg, park(strings.Repeat("t", 249), "e1"))[0])
	other := read(tell(t, cfg, park(strings.Repeat("t", 248)+"u", "e1"))[0])
	if len(long.DedupKey) > 255 || long.DedupKey == other.DedupKey {
		t.Errorf("dedup keys of long topics: %q and %q", long.DedupKey, other.DedupKey)
	}
}

func TestPagerDuty_ResolvesWhatWorksAgain(t *testing.T) {
	t.Parallel()
	got := make(chan map[string]any, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e map[string]any
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		got <- e
	}))
	defer server.Close()
	hook, err := notify.New(notify.Config{
		URL: notify.URL(server.URL), Format: notify.PagerDuty, Secret: "key", PausedFor: time.Nanosecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hook.Run(ctx) }()
	hook.Observe(core.PauseEvent{Broker: "main", Destination: "orders", Failures: 3, Err: errors.New("no leader")})
	trigger := <-got
	hook.Observe(core.ResumeEvent{Broker: "main", Destination: "orders"})
	resolve := <-got
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if trigger["event_action"] != "trigger" || resolve["event_action"] != "resolve" || resolve["payload"] != nil ||
		trigger["dedup_key"] != resolve["dedup_key"] || resolve["routing_key"] != "key" {
		t.Errorf("got %v and then %v", trigger, resolve)
	}
}

// Whatever goes wrong, neither the token in the URL nor the key is seen in the log.
func TestWebhook_LogShowsNoSecret(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refusing.Close)
	moved := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect))
	t.Cleanup(moved.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for want, at := range map[string]string{"404": refusing.URL, "307": moved.URL, "refused": gone.URL} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			log, said := logged()
			_, host, _ := strings.Cut(at, "://")
			hook, err := notify.New(notify.Config{
				URL:    notify.URL("http://user:PASSWORD@" + host + "/services/TOKEN?key=QUERY"),
				Secret: secret, Logger: log, Timeout: time.Second, // it tries for so long
			})
			if err != nil {
				t.Fatal(err)
			}
			hook.Observe(park("orders", "e1"))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := hook.Run(ctx); err != nil {
				t.Fatal(err)
			}
			text := said()
			if !strings.Contains(text, want) || !strings.Contains(text, host) {
				t.Errorf("the log lacks %q or the host: %s", want, text)
			}
			wantNone(t, "the log", text, "PASSWORD", "TOKEN", "QUERY", secret, strings.TrimPrefix(secret, "whsec_"), "PAYLOAD")
		})
	}
}
