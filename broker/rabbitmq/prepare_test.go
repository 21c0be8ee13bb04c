package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// token is a strategy that gives every message this routing key.
type token string

func (t token) Route(in ordering.Input) (ordering.Route, error) {
	if t == "" {
		return ordering.Route{}, errors.New("no")
	}
	return ordering.Route{Destination: in.Topic, Token: string(t)}, nil
}
func (token) Fingerprint() string { return "token" }

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	long, large := strings.Repeat("x", 256), strings.Repeat("x", rabbitmq.DefaultFrameMax)
	topic := func(name string) func(*core.Record) { return func(r *core.Record) { r.Topic = name } }
	const invalidTopic, invalidProperty = "INVALID_TOPIC", "INVALID_PROPERTY"
	for name, c := range map[string]struct {
		change   func(*core.Record)
		strategy ordering.Strategy
		code     string
		word     string
	}{
		"no topic":             {change: topic(""), code: invalidTopic, word: "is empty"},
		"a long topic":         {change: topic(long), code: invalidTopic, word: "255"},
		"a reserved topic":     {change: topic("amq.direct"), code: invalidTopic, word: "amq."},
		"a line break":         {change: topic("a\nb"), code: invalidTopic, word: "control"},
		"no valid text":        {change: topic("a\xFFb"), code: invalidTopic, word: "UTF-8"},
		"a long event id":      {change: func(r *core.Record) { r.EventID = long }, code: invalidProperty, word: "event id"},
		"a long event type":    {change: eventType(long), code: invalidProperty, word: "event type"},
		"a long content type":  {change: header("content-type", long), code: invalidProperty, word: "content-type"},
		"a long header name":   {change: header(long, ""), code: invalidProperty, word: "256"},
		"no header name":       {change: header("", "v"), code: invalidProperty, word: "header"},
		"copies":               {change: header("CC", "elsewhere"), code: invalidProperty, word: "CC"},
		"blind copies":         {change: header("BCC", "elsewhere"), code: invalidProperty, word: "BCC"},
		"deaths":               {change: header("x-death", "v"), code: invalidProperty, word: "x-death"},
		"large headers":        {change: header("h", large), code: "HEADERS_TOO_LARGE", word: "131072"},
		"a large payload":      {change: payload(101), code: "MESSAGE_TOO_LARGE", word: "100"},
		"a long routing key":   {strategy: token(long), code: invalidProperty, word: "routing key"},
		"an unroutable record": {strategy: token(""), code: "NO_ROUTE", word: "no"},
	} {
		b := open(t, rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}, Strategy: c.strategy, MaxMessageBytes: 100})
		r := brokertest.NewRecord("orders", "a", 1)
		if _, err := b.Prepare(r); err != nil && c.strategy == nil {
			t.Fatalf("a record in order: %v", err)
		}
		if c.change != nil {
			c.change(r)
		}
		_, err := b.Prepare(r)
		var e *core.PublishError
		if !errors.As(err, &e) || e.Class != core.ClassPermanent || e.Scope != core.ScopeMessage || e.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
			continue
		}
		if text := err.Error(); !strings.Contains(text, c.word) || len(text) > 1000 {
			t.Errorf("%s: the error has %d bytes and is %.1000q, want %q in it", name, len(text), text, c.word)
		}
	}
}

func header(name, value string) func(*core.Record) {
	return func(r *core.Record) { r.Headers[name] = value }
}

func payload(size int) func(*core.Record) {
	return func(r *core.Record) { r.Payload = make([]byte, size) }
}

func eventType(name string) func(*core.Record) {
	return func(r *core.Record) { r.EventType = name }
}
