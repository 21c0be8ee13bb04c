package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/rabbitmq"
)

// settingsOf returns the settings that the factory of the broker would get.
func settingsOf[T any](t *testing.T, c *Config, broker string) T {
	t.Helper()
	settings, ok := c.brokers[broker].given.Interface().(T)
	if !ok {
		t.Fatalf("the settings are %T", c.brokers[broker].given.Interface())
	}
	return settings
}

func TestField_168_TheEnvironmentOverridesEveryKey(t *testing.T) {
	t.Parallel()
	const file = `
broker:
  type: kafka
  kafka:
    brokers: [a:9092, b:9092]
    unsafe_acks: true
    sasl: {mechanism: plain, username: app}
    dial_timeout: 3s
dispatcher: {poll_max: 2s}
`
	c := mustLoad(t, file,
		"OUTBOX_BROKER_KAFKA_SASL_PASSWORD=hunter2", // a key that the file does not have
		"OUTBOX_BROKER_KAFKA_BROKERS_0=x:9092",      // an item of a list
		"OUTBOX_BROKER_KAFKA_BROKERS_2=c:9092",      // one more
		"OUTBOX_BROKER_KAFKA_DIAL_TIMEOUT=7s",       // a duration
		"OUTBOX_BROKER_KAFKA_UNSAFE_ACKS=false",     // a bool that becomes false
		"OUTBOX_BROKER_KAFKA_TLS_CA_FILE=/ca.pem",   // a map that the file does not have
		"OUTBOX_BROKER_KAFKA_CLIENT_ID=",            // empty: not set
		"OUTBOX_TOPICS_ORDER=shop.orders",
		"OUTBOX_DISPATCHER_OUTAGE_MULTIPLIER=1.5",
		"OUTBOX_DISPATCHER_RETRY_BACKOFF_MAX=2m",
	)
	got := settingsOf[kafka.Config](t, c, "")
	if string(got.SASL.Password) != "hunter2" || !slices.Equal(got.Brokers, []string{"x:9092", "b:9092", "c:9092"}) ||
		got.DialTimeout != 7*time.Second || got.UnsafeAcks || got.TLS.CAFile != "/ca.pem" || got.ClientID != "" {
		t.Errorf("got %+v", got)
	}
	if d := c.Dispatcher(nil); d.PollMax != 2*time.Second || d.Outage.Multiplier != 1.5 || d.Retry.Backoff.Max != 2*time.Minute {
		t.Errorf("got %+v", d)
	}
	printed := strings.Join(strings.Fields(c.String()), " ")
	for _, want := range []string{
		"password: '***' # OUTBOX_BROKER_KAFKA_SASL_PASSWORD", "- x:9092 # OUTBOX_BROKER_KAFKA_BROKERS_0",
		"- b:9092 # outbox.yaml:5:23", "- c:9092 # OUTBOX_BROKER_KAFKA_BROKERS_2",
		"dial_timeout: 7s # OUTBOX_BROKER_KAFKA_DIAL_TIMEOUT", "unsafe_acks: false # OUTBOX_BROKER_KAFKA_UNSAFE_ACKS",
		"username: app # outbox.yaml:7:40", "client_id: outbox # default", "order: shop.orders # OUTBOX_TOPICS_ORDER",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("lacks %q in\n%s", want, c)
		}
	}
}

func TestEnvironmentAlone(t *testing.T) {
	t.Parallel()
	c, err := Load(t.Context(), everything(), Input{Environ: []string{
		"OUTBOX_STORE_TYPE=memory",
		"OUTBOX_BROKERS_MAIN=kafka://k:9092",
		"OUTBOX_BROKERS_JOBS_TYPE=rabbitmq",
		"OUTBOX_BROKERS_JOBS_RABBITMQ_ADDRESSES=r1, r2:5673", // a whole list
		"OUTBOX_BROKERS_JOBS_RABBITMQ_GROUPS_ORDER_0_NAME=billing",
		"OUTBOX_BROKERS_JOBS_RABBITMQ_ORDERING_STRATEGY=none",
		"OUTBOX_ROUTES_0_MATCH=jobs.*", "OUTBOX_ROUTES_0_BROKER=jobs",
		"OUTBOX_ROUTES_1_MATCH=*", "OUTBOX_ROUTES_1_BROKER=main",
	}})
	if err != nil {
		t.Fatal(err)
	}
	jobs := settingsOf[rabbitmq.Config](t, c, "jobs")
	if !slices.Equal(jobs.Addresses, []string{"r1", "r2:5673"}) || jobs.Groups["order"][0].Name != "billing" ||
		jobs.Strategy.Fingerprint() != "none/v1" {
		t.Errorf("got %+v", jobs)
	}
	if main := settingsOf[kafka.Config](t, c, "main"); !slices.Equal(main.Brokers, []string{"k:9092"}) {
		t.Errorf("got %+v", main)
	}
	if len(c.routes) != 2 || c.routes[0].Broker != "jobs" {
		t.Errorf("routes %v", c.routes)
	}
}

func TestField_169_OnlyOurPrefixCounts(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "broker: {type: memory, memory: {max_batch: 7}}",
		"BROKERS=foo", "DATABASE=bar", "PORT=tcp://1.2.3.4:80", "BROKER=x", "BROKER_TYPE=kafka", "outbox_broker=x",
		// What Kubernetes sets for services called "outbox" and "outbox-broker".
		"OUTBOX_PORT=tcp://1.2.3.4:80", "OUTBOX_SERVICE_HOST=1.2.3.4", "OUTBOX_SERVICE_PORT=80", "OUTBOX_SERVICE_PORT_HTTP=80",
		"OUTBOX_PORT_80_TCP=tcp://1.2.3.4:80", "OUTBOX_PORT_80_TCP_ADDR=1.2.3.4", "OUTBOX_BROKER_PORT=tcp://1.2.3.4:80",
		// What this project's tests and scripts set.
		"OUTBOX_TEST_KAFKA_URL=kafka://x", "OUTBOX_REQUIRE=kafka", "OUTBOX_SERVICES_DIR=/x", "OUTBOX_STOP_SERVICES=1",
	)
	if got := settingsOf[membroker.Config](t, c, ""); got.MaxBatch != 7 {
		t.Errorf("got %+v", got)
	}
}

func TestVariablesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, file, variable, want string }{
		{"misspelt", "", "OUTBOX_DISPATCHER_FETCHSIZE=1", "OUTBOX_DISPATCHER_FETCHSIZE names no key; did you mean OUTBOX_DISPATCHER_FETCH_SIZE?"},
		{"unlike anything", "", "OUTBOX_HELLO=1", "OUTBOX_HELLO names no key; the names begin with OUTBOX_STORE, OUTBOX_BROKER, OUTBOX_BROKERS"},
		{"not a leaf", "", "OUTBOX_DISPATCHER=1", "OUTBOX_DISPATCHER names no key"},
		{"an index too far", "", "OUTBOX_ROUTES_1000_MATCH=a", "names no key"},
		{"an index with zeros", "", "OUTBOX_ROUTES_00_MATCH=a", "names no key"},
		{"not a number", "", "OUTBOX_DISPATCHER_FETCH_SIZE=a", `OUTBOX_DISPATCHER_FETCH_SIZE dispatcher.fetch_size: "a" is not a whole number`},
		{"refused", "", "OUTBOX_DISPATCHER_FETCH_SIZE=-1", "OUTBOX_DISPATCHER_FETCH_SIZE dispatcher.fetch_size: is -1"},
		{"a part of a URL", "broker: kafka://k", "OUTBOX_BROKER_KAFKA_CLIENT_ID=a", "OUTBOX_BROKER_KAFKA_CLIENT_ID cannot change a part of " +
			"what is given as one value by outbox.yaml:1:9"},
		{"a part of something else", "dispatcher: []", "OUTBOX_DISPATCHER_NAME=a", "OUTBOX_DISPATCHER_NAME cannot change a part of what stands " +
			"at outbox.yaml:1:13: it has another form"},
		{"another type", "broker: {type: memory}", "OUTBOX_BROKER_SQS_REGION=eu", "OUTBOX_BROKER_SQS_REGION broker.sqs: is settings for another type"},
		{
			"a gap in a list", "broker: {type: kafka, kafka: {brokers: [a]}}", "OUTBOX_BROKER_KAFKA_BROKERS_2=b",
			"broker.kafka.brokers[1]: is missing: a variable sets a later item only",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(tt.file, tt.variable)
			if got := lines(t, err); !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, tt.want) }) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), tt.want)
			}
		})
	}
}

// TestPrecedence: settings, then variables, then later files, then earlier ones.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	in := Input{
		Files: []string{"base.yaml", "site.yaml"},
		ReadFile: files{
			"base.yaml": "dispatcher: {name: base, fetch_size: 1, publish_size: 2, poll_max: 3s}\nbroker: {type: memory, memory: {max_batch: 1}}",
			"site.yaml": "dispatcher: {fetch_size: 10, publish_size: 20, poll_max: 30s}\nbroker: {memory: {discard: true}}",
		}.read,
		Environ:  []string{"OUTBOX_DISPATCHER_PUBLISH_SIZE=200", "OUTBOX_DISPATCHER_POLL_MAX=300s", "OUTBOX_STORE_TYPE=memory"},
		Settings: []Setting{{"dispatcher.poll_max", "3000s", "--poll-max"}},
	}
	c, err := Load(t.Context(), everything(), in)
	if err != nil {
		t.Fatal(err)
	}
	d := c.Dispatcher(nil)
	if d.Name != "base" || d.FetchSize != 10 || d.PublishSize != 200 || d.PollMax != 3000*time.Second {
		t.Errorf("got %+v", d)
	}
	if got := settingsOf[membroker.Config](t, c, ""); got.MaxBatch != 1 || !got.Discard {
		t.Errorf("got %+v", got)
	}
	if text := c.String(); !strings.Contains(text, "# --poll-max") || !strings.Contains(text, "# site.yaml:1:26") {
		t.Errorf("origins are missing in\n%s", text)
	}
	in.Settings = append(in.Settings, Setting{"broker", "kafka://k", "--broker"}) // replaces the whole block
	if c, err = Load(t.Context(), everything(), in); err != nil {
		t.Fatal(err)
	}
	if got := settingsOf[kafka.Config](t, c, ""); got.Brokers[0] != "k" {
		t.Errorf("got %+v", got)
	}
}

func TestExpansion(t *testing.T) {
	t.Parallel()
	read := files{"/run/secrets/x": "a: {b}\r\n", "/run/secrets/y": "two\nlines\n"}.read
	environ := map[string]string{"A": "1", "EMPTY": "", "NEST": "${A}"}
	tests := []struct{ raw, want, err string }{
		{"plain", "plain", ""},
		{"a${A}b${A}", "a1b1", ""},
		{"$$", "$", ""},
		{"$${A}", "${A}", ""},
		{"pa$word$", "pa$word$", ""},
		{"${NEST}", "${A}", ""}, // once is enough
		{"${EMPTY}", "", ""},
		{"${EMPTY:-b}", "b", ""},
		{"${NONE:-}", "", ""},
		{"${NONE:-http://x:1/$y}", "http://x:1/$y", ""},
		{"${file:/run/secrets/x}", "a: {b}", ""},
		{"<${file:/run/secrets/y}>", "<two\nlines>", ""},
		{"${NONE}", "", "the environment variable NONE is not set; set it, or write ${NONE:-default}"},
		{"${file:/none}", "", "${file:/none}: open /none: file does not exist"},
		{"${A", "", `"${" is not closed; write $${ to mean it`},
		{"${}", "", "${...} must be"},
		{"${A-b}", "", "${...} must be"},
	}
	for _, tt := range tests {
		e := expander{environ: environ, readFile: read, used: map[string]bool{}}
		got, _, err := e.expand(tt.raw)
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%s: got %q, %v; want %q", tt.raw, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.err)):
			t.Errorf("%s: got %q, %v; want the error %q", tt.raw, got, err, tt.err)
		}
	}
	c := mustLoad(t, "broker: {type: memory, memory: {max_batch: \"${OUTBOX_BATCH}\"}}", "OUTBOX_BATCH=12")
	if got := settingsOf[membroker.Config](t, c, ""); got.MaxBatch != 12 {
		t.Errorf("got %+v", got)
	}
	_, err := load("broker: {type: memory, memory: {max_batch: \"${A}${B}\", discard: \"${file:/none}\"}}")
	got := lines(t, err)
	if len(got) != 3 || !strings.HasPrefix(got[0], "outbox.yaml:1:44 broker.memory.max_batch: the environment variable A is not set") {
		t.Errorf("got %q", got)
	}
}
