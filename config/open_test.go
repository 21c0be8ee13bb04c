package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/mux"
	"github.com/go-outbox/outbox/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a broker that tells when it is closed.
type watched struct {
	core.Broker
	closed func()
}

func (w watched) Close(context.Context) error {
	w.closed()
	return nil
}

// watching is a registry with a broker of somebody's own, which needs no name and cannot open without a region.
func watching(closed *[]string) Registry {
	var mu sync.Mutex // brokers are closed at the same time
	type settings struct {
		Region string
		Logger *slog.Logger
	}
	r := everything()
	r.Brokers["own"] = func(_ context.Context, decode func(any) error) (core.Broker, error) {
		var s settings
		if err := decode(&s); err != nil {
			return nil, err
		}
		if s.Region == "" {
			return nil, errors.New("own: no region")
		}
		s.Logger.Info("opened " + s.Region)
		return watched{membroker.New(membroker.Config{}), func() {
			mu.Lock()
			defer mu.Unlock()
			*closed = append(*closed, s.Region)
		}}, nil
	}
	return r
}

func TestOpen(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c, err := Load(t.Context(), everything(), Input{Files: []string{"a"}, ReadFile: files{"a": `
store: {type: memory, memory: {lanes: 4}}
broker: {type: memory}
topics: {order: shop.orders}
dispatcher: {name: shop}
`}.read})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := c.Open(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	d, err := core.NewDispatcher(parts.Store, parts.Broker, parts.Dispatcher)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.RunOnce(t.Context()); err != nil {
		t.Error(err)
	}
	for aggregate, want := range map[string]string{"order": "shop.orders", "invoice": "invoice"} {
		if got, err := parts.Dispatcher.Route(&core.Record{Message: core.Message{AggregateType: aggregate}}); got != want || err != nil {
			t.Errorf("%s goes to %q, %v; want %q", aggregate, got, err, want)
		}
	}
	if c.StoreType() != "memory" || !strings.Contains(log.String(), "outbox=shop") {
		t.Errorf("type %q, log %s", c.StoreType(), &log)
	}
	if err := parts.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenSeveralBrokers(t *testing.T) {
	t.Parallel()
	var closed []string
	var log bytes.Buffer
	text := `
brokers:
  a: {type: own, own: {region: eu}}
  b: {type: own, own: {region: us}}
  c: {type: memory}
routes: [{match: "x.*", broker: a}, {match: "*", broker: b}]
`
	in := Input{Files: []string{"a"}, Partial: true, ReadFile: files{"a": text}.read}
	c, err := Load(t.Context(), watching(&closed), in)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := c.OpenBroker(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := broker.(*mux.Broker); !ok || strings.Count(log.String(), "opened ") != 2 {
		t.Errorf("%T, log %s", broker, &log)
	}
	if p, err := broker.Prepare(&core.Record{ID: 1, Message: core.Message{
		Topic: "x.1", EventID: "e", AggregateType: "t", AggregateID: "1",
	}}); err != nil || p.Broker != "a" {
		t.Errorf("x.1 goes to %q, %v", p.Broker, err)
	}
	if err := broker.Close(t.Context()); err != nil || len(closed) != 2 {
		t.Errorf("closed %v, %v", closed, err)
	}

	// When one cannot be opened the others are closed.
	closed = nil
	in.ReadFile = files{"a": strings.Replace(text, "{region: us}", "{}", 1)}.read
	if c, err = Load(t.Context(), watching(&closed), in); err != nil {
		t.Fatal(err)
	}
	_, err = c.OpenBroker(t.Context(), slog.New(slog.DiscardHandler))
	if err == nil || err.Error() != `broker "b": own: no region` || !slices.Equal(closed, []string{"eu"}) {
		t.Errorf("error %v, closed %v", err, closed)
	}
}

func TestOpenWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "")
	if _, err := c.Open(t.Context(), nil); err == nil || err.Error() != "config: there is no store" {
		t.Errorf("got %v", err)
	}
	if _, err := c.OpenBroker(t.Context(), nil); err == nil || err.Error() != "config: there is no broker" {
		t.Errorf("got %v", err)
	}
}

func TestFactoriesThatBreakTheRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		factory BrokerFactory
		want    string
	}{
		{"never decodes", func(context.Context, func(any) error) (core.Broker, error) {
			return membroker.New(membroker.Config{}), nil
		}, `config: a factory must call decode first and return its error (type "own")`},
		{"drops the error", func(_ context.Context, decode func(any) error) (core.Broker, error) {
			_ = decode(&struct{}{})
			return membroker.New(membroker.Config{}), nil
		}, `config: a factory must call decode first and return its error (type "own")`},
		{"decodes into nothing", func(_ context.Context, decode func(any) error) (core.Broker, error) {
			return nil, decode(map[string]string{})
		}, `config: a factory gave decode a map[string]string instead of a pointer to a struct (type "own")`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(t.Context(), Registry{Brokers: map[string]BrokerFactory{"own": tt.factory}}, Input{Partial: true})
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// nobodyListens returns an address that refuses connections.
func nobodyListens(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestField_166_SecretsAppearNowhere: with everything down, neither logs nor errors nor the printed configuration show a
// secret, whichever way it was given.
func TestField_166_SecretsAppearNowhere(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	down := nobodyListens(t)
	block := func(store string) string {
		return `
store: ` + store + `
brokers:
  kafka:
    type: kafka
    kafka: {brokers: [` + down + `], dial_timeout: 100ms, sasl: {mechanism: plain, username: app, password: "${PASSWORD}"}}
  rabbit:
    type: rabbitmq
    rabbitmq: {addresses: [` + down + `], dial_timeout: 100ms, username: app, password: "${file:/run/secrets/p}"}
  queues:
    type: sqs
    sqs: {endpoint: "http://` + down + `", request_timeout: 1s, credentials: {access_key_id: app, secret_access_key: ` + secret + `}}
  url: kafka://app:` + secret + `@` + down + `?dial_timeout=100ms
  amqp: amqps://app:` + secret + `@` + down + `?dial_timeout=100ms
routes: [{match: "*", broker: kafka}]
`
	}
	for _, store := range []string{
		`postgres://app:` + secret + `@` + down + `/shop?connect_timeout=1`,
		`{type: postgres, postgres: {dsn: "postgres://app:` + secret + `@` + down + `/shop"}}`,
		`{type: postgres, postgres: {dsn: "host=127.0.0.1 port=1 user=app password=` + secret + ` dbname=shop"}}`,
		`{type: postgres, postgres: {dsn: "postgres://app:${PASSWORD}/@` + down + `/shop"}}`,
	} {
		var all bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&all, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c, err := Load(t.Context(), everything(), Input{
			Files: []string{"outbox.yaml"}, Environ: []string{"PASSWORD=" + secret},
			ReadFile: files{"outbox.yaml": block(store), "/run/secrets/p": secret + "\n"}.read,
		})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("config", "config", c)
		fmt.Fprintf(&all, "%v %+v %#v %s %q\n", c, c, c, c, c)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		store, storeErr := c.OpenStore(ctx, log)
		if storeErr == nil { // it connects with its first use
			_, storeErr = store.Lease(ctx, core.LeaseRequest{Member: "m", TTL: time.Minute})
			storeErr = errors.Join(storeErr, store.Close())
		}
		broker, err := c.OpenBroker(ctx, log)
		if err != nil {
			t.Fatal(err)
		}
		checkErr := broker.Check(ctx)
		fmt.Fprintf(&all, "%v\n%v\n%v\n", storeErr, checkErr, broker.Close(ctx))
		cancel()
		if storeErr == nil || checkErr == nil {
			t.Errorf("store %v, brokers %v: they should be down", storeErr, checkErr)
		}
		if strings.Contains(all.String(), secret) {
			t.Errorf("a secret with %s in\n%s", store, &all)
		}
		if n := strings.Count(c.String(), "***"); n != 5 {
			t.Errorf("%d secrets are hidden, want 5 and one from a file:\n%s", n, c)
		}
	}
}

// TestPrintIsAConfiguration: what is printed can be read again, and means the same.
func TestPrintIsAConfiguration(t *testing.T) {
	t.Parallel()
	const text = `
store: {type: sqlite, sqlite: {path: "shop: the \"file\".db", busy_timeout: 1m30s}}
brokers:
  main: kafka://k1,k2:9093?hash=crc32&partitions=12
  jobs:
    type: rabbitmq
    rabbitmq:
      addresses: [r]
      ordering: {strategy: shards, count: 12}
      accept_unroutable: ["*", "yes", "1"]
      groups: {"*": [{name: a, queues: 4}], "x.y": []}
  "off": {type: sqs, sqs: {region: eu, ordering: {strategy: none}, new_queue: {attributes: {DelaySeconds: "5"}}}}
routes: [{match: "jobs.*", broker: jobs}, {match: "*", broker: main}]
topics: {order: "a\nb"}
dispatcher: {outage: {multiplier: 1.5}}
`
	printed := mustLoad(t, text).String()
	again := mustLoad(t, printed).String()
	comment := regexp.MustCompile(` +# .*`)
	if a, b := comment.ReplaceAllString(printed, ""), comment.ReplaceAllString(again, ""); a != b {
		t.Errorf("printed\n%s\nand again\n%s", printed, again)
	}
	if rest := regexp.MustCompile(`\{\} +# default`).ReplaceAllString(again, ""); strings.Contains(rest, "# default") {
		t.Errorf("something was not printed:\n%s", again)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://u:p@h:5432/db?a=b@c":        "postgres://u:***@h:5432/db?a=b@c",
		"postgres://u:p%40@h":                   "postgres://u:***@h",
		"postgres://u:p@h?sslpassword=x&a=b":    "postgres://u:***@h?sslpassword=***&a=b",
		"postgres://u:p/12@h/db":                "***",
		"postgres://u:12/p@h/db":                "***",
		"postgres://u@h/db":                     "postgres://u@h/db",
		"host=h password=x y=z":                 "host=h password=*** y=z",
		`host=h password = 'a b\' c' y=z`:       "host=h password = *** y=z",
		"https://sqs.eu.amazonaws.com/1/q.fifo": "https://sqs.eu.amazonaws.com/1/q.fifo",
		"me@example.com":                        "me@example.com",
	} {
		if got := redact(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// FuzzLoad: no input makes it panic, and no fault shows what a variable or file held.
func FuzzLoad(f *testing.F) {
	f.Add("broker: {type: kafka, kafka: {brokers: [k], dial_timeout: \"${SECRET}\"}}", "OUTBOX_TOPICS_A", "1")
	f.Add("broker: \"${SECRET}\"\nstore: {type: \"${SECRET}\"}", "OUTBOX_BROKERS_A_B", "x")
	f.Add("a: [*b, {? c}]\n---\n", "OUTBOX_ROUTES_3_MATCH", "[")
	f.Add("dispatcher: {fetch_size: \"${file:/s}\"}\n", "OUTBOX_", "")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		const secret = "qzxj-7731-qzxj"
		c, err := Load(t.Context(), everything(), Input{
			Files: []string{"outbox.yaml"}, Environ: []string{name + "=" + value, "SECRET=" + secret}, Partial: true,
			ReadFile: files{"outbox.yaml": text, "/s": secret}.read,
		})
		if err == nil && c.String() == "" {
			t.Error("a configuration that is empty")
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("a secret: %v", err)
		}
	})
}
