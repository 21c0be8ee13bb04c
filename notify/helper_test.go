package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver answers requests in place of the network, so that a test can own the time.
type receiver struct {
	mu     sync.Mutex
	got    []message
	answer func(n int) error // nil: 200; of the n-th request, from 1
	wait   time.Duration     // before the answer
}

// message is what a receiver reads of a generic message.
type message struct {
	at   time.Time
	Type string
	Data struct {
		Topic, Destination, Summary, Reason string
		EventID                             string `json:"event_id"`
		LeftOut                             int    `json:"left_out"`
	}
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	m := message{at: time.Now()}
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.got = append(r.got, m)
	n := len(r.got)
	r.mu.Unlock()
	if r.wait > 0 {
		select {
		case <-time.After(r.wait):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	status := http.StatusOK
	if r.answer != nil {
		switch err := r.answer(n); {
		case errors.Is(err, errStatus):
			status = http.StatusInternalServerError
		case err != nil:
			return nil, err
		}
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
}

// errStatus makes a receiver answer 500.
var errStatus = errors.New("status 500")

func (r *receiver) messages() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}

// start runs a webhook that tells the receiver, until the returned function is called.
func start(t *testing.T, r *receiver, cfg notify.Config) (hook *notify.Webhook, stop func()) {
	t.Helper()
	cfg.URL, cfg.Client = "https://hooks.example.com/token", &http.Client{Transport: r}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	hook, err := notify.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hook.Run(ctx) }()
	return hook, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func record(topic, id string) *core.Record {
	return &core.Record{ID: 7, Message: core.Message{
		EventID: id, Topic: topic, AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		Payload: []byte(`"PAYLOAD"`), Headers: map[string]string{"authorization": "HEADER"},
	}}
}

func park(topic, id string) core.ParkEvent {
	return core.ParkEvent{Record: record(topic, id), Attempts: 10, Reason: "kafka: topic " + topic + ": too large"}
}

// logged is a logger and what it wrote.
func logged() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var text bytes.Buffer
	log := slog.New(slog.NewJSONHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(p)
	}), nil))
	return log, func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func wantNone(t *testing.T, where, text string, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		if strings.Contains(text, s) {
			t.Errorf("%s shows %q: %s", where, s, text)
		}
	}
}

// advance lets time pass, in a bubble of synctest.
func advance(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
