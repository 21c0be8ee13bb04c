package sqs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config sqs.Config
		paths  string // of the faults, in order
	}{
		{sqs.Config{}, ""},
		{sqs.Config{Strategy: ordering.None{}}, ""},
		{sqs.Config{Strategy: ordering.None{}, QueueName: "{topic}.fifo"}, ""},
		{sqs.Config{QueueName: "prod-{topic}.fifo"}, ""},
		{sqs.Config{QueueName: "orders.fifo"}, "QueueName"},
		{sqs.Config{QueueName: "{topic}"}, "QueueName"},
		{sqs.Config{QueueName: "{topic}-{topic}.fifo"}, "QueueName"},
		{sqs.Config{QueueName: "a.b-{topic}.fifo"}, "QueueName"},
		{sqs.Config{QueueName: strings.Repeat("p", 50) + "{topic}.fifo"}, "QueueName"},
		{sqs.Config{QueueURLs: map[string]string{"a": "https://host/1/a.fifo", "b": "https://host/1/b"}}, `QueueURLs["b"]`},
		{sqs.Config{QueueURLs: map[string]string{"a": "a.fifo"}}, `QueueURLs["a"]`},
		{sqs.Config{
			Endpoint: "localhost:9324", Credentials: sqs.Credentials{AccessKeyID: "a"}, MaxMessageBytes: 1 << 21,
			Concurrency: -1, RequestTimeout: -time.Second,
		}, "Endpoint Credentials.AccessKeyID MaxMessageBytes Concurrency RequestTimeout"},
		{sqs.Config{MaxMessageBytes: 1023}, "MaxMessageBytes"},
	} {
		var paths []string
		err := c.config.Validate()
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				var fault *core.FieldError
				if !errors.As(e, &fault) {
					t.Fatalf("%v is no *core.FieldError", e)
				}
				paths = append(paths, fault.Path)
			}
		}
		if got := strings.Join(paths, " "); got != c.paths {
			t.Errorf("faults of %q, want %q: %v", got, c.paths, err)
		}
		if _, err := sqs.Open(t.Context(), c.config); c.paths != "" && err == nil {
			t.Errorf("Open takes a configuration with faults of %q", c.paths)
		}
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	config, err := sqs.ParseURL("sqs:?region=eu-west-1&prefix=prod-&group_runs=true&concurrency=8&request_timeout=3s" +
		"&max_message_bytes=262144&high_throughput=true")
	if err != nil {
		t.Fatal(err)
	}
	if config.Region != "eu-west-1" || config.QueueName != "prod-{topic}.fifo" || !config.GroupRuns ||
		config.Concurrency != 8 || config.RequestTimeout != 3*time.Second || config.MaxMessageBytes != 262144 ||
		!config.NewQueue.HighThroughput || config.Endpoint != "" || !config.Credentials.IsZero() {
		t.Errorf("got %+v", config)
	}
	config, err = sqs.ParseURL("sqs://us%40er:p%2Fw@localhost:9324/?strategy=none&tls=true")
	if err != nil {
		t.Fatal(err)
	}
	if config.Endpoint != "https://localhost:9324" || config.Credentials.AccessKeyID != "us@er" ||
		string(config.Credentials.SecretAccessKey) != "p/w" || config.Strategy != (ordering.None{}) {
		t.Errorf("got %+v", config)
	}
	config, err = sqs.ParseURL("sqs://127.0.0.1:9324")
	if err != nil {
		t.Fatal(err)
	}
	if config.Endpoint != "http://127.0.0.1:9324" || config.Credentials.IsZero() {
		t.Errorf("got %+v", config)
	}
}

func TestParseURLFaults(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"kafka://host":               "does not begin with the scheme sqs",
		"sqs:host:1":                 "two slashes",
		"sqs://host/path":            "a path is not allowed",
		"sqs://h:port":               "host:port",
		"sqs://[::1":                 "host:port",
		"sqs://:9324":                "host:port",
		"sqs://embedded":             "sqsfake",
		"sqs:?regoin=x":              `unknown parameter "regoin"`,
		"sqs:?region=x&region=y":     "given 2 times",
		"sqs:?concurrency=x":         `"x" is not a whole number`,
		"sqs:?group_runs=x":          `"x" is not true or false`,
		"sqs:?request_timeout=x":     "not a duration",
		"sqs:?strategy=x":            "message-group or none",
		"sqs:?queue_name=x":          "QueueName",
		"sqs://a:%zz@h:1?region=%zz": "not encoded as in a URL",
	} {
		if _, err := sqs.ParseURL(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", raw, err, want)
		}
	}
	_, err := sqs.ParseURL("sqs:?regoin=x&concurrency=y&max_message_bytes=1")
	for _, want := range []string{"regoin", "concurrency", "MaxMessageBytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not all faults at once: %v", err)
		}
	}
}
