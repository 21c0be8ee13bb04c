package config

import (
	"slices"
	"strings"
	"testing"
)

// TestOneCauseIsOneFault: what only follows from another fault is not told, and what has a cause of its own is.
func TestOneCauseIsOneFault(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		environ    []string
		want       []string // all of them, without the name of the file
	}{
		{"taken over by topic_retry", `
dispatcher:
  retry: {exhausted: stop, max_attempts: -1, backoff: {initial: 5s, max: 1s}}
  topic_retry: [{match: a}, {match: b, exhausted: stop}, {match: c, backoff: {multiplier: 0.5}}]
`, nil, []string{
			`:3:11 dispatcher.retry.exhausted: is "stop", must be one of ["park" "block" "halt"]`,
			`:3:28 dispatcher.retry.max_attempts: is -1, must be at least 1`,
			`:3:69 dispatcher.retry.backoff.max: is 1s, must be at least initial, 5s`,
			`:4:40 dispatcher.topic_retry[1].exhausted: is "stop", must be one of ["park" "block" "halt"]`,
			`:4:79 dispatcher.topic_retry[2].backoff.multiplier: is 0.5, must be at least 1`,
		}},
		{"compared with what is wrong", "dispatcher: {fetch_size: -5, lease_ttl: 1ms}", nil, []string{
			":1:14 dispatcher.fetch_size: is -5, must be at least 1",
			":1:30 dispatcher.lease_ttl: is 1ms, must be at least 100ms",
		}},
		{"compared with what cannot be read", "dispatcher: {fetch_size: many, max_in_flight: 3}", nil, []string{
			`:1:26 dispatcher.fetch_size: "many" is not a whole number`,
		}},
		{"a default that does not fit what is given", "dispatcher: {fetch_bytes: 99999999999, lease_ttl: 1ms}", nil, []string{
			":1:13 dispatcher.max_in_flight_bytes: is 33554432, must be at least fetch_bytes, 99999999999",
			":1:40 dispatcher.lease_ttl: is 1ms, must be at least 100ms",
		}},
		{"misspelt", "broker: {type: kafka, kafka: {broker: [k]}}\ndispatcher: {topic_retry: [{topic: a}]}", nil, []string{
			`:1:31 unknown key "broker.kafka.broker"; did you mean "brokers"?`,
			`:2:29 unknown key "dispatcher.topic_retry[0].topic"; did you mean "match"?`,
		}},
		{"misspelt, and something else is missing", "dispatcher: {topic_retry: [{exausted: block}]}", nil, []string{
			`:1:28 dispatcher.topic_retry[0].match: is "", which is not a pattern such as orders.*`,
			`:1:29 unknown key "dispatcher.topic_retry[0].exausted"; did you mean "exhausted"?`,
		}},
		{"at the wrong level", "broker: {type: kafka, brokers: [k]}", nil, []string{
			`:1:23 unknown key "broker.brokers"; did you mean "broker.kafka.brokers"?`,
		}},
		{"block of another type", "broker: {type: kafka, sqs: {}}", nil, []string{
			`:1:23 broker.sqs: is settings for another type than broker.type, "kafka" (outbox.yaml:1:16); keep only one block`,
		}},
		{"a format that may be the one without a URL", "notify: {format: pagrduty, secret: x}", nil, []string{
			`:1:10 notify.format: unknown "pagrduty"; use generic, slack or pagerduty`,
		}},
		{"an item that is not there", "", []string{"OUTBOX_DISPATCHER_TOPIC_RETRY_0_MATCH=a", "OUTBOX_DISPATCHER_TOPIC_RETRY_2_MATCH=b"}, []string{
			"dispatcher.topic_retry[1]: is missing: a variable sets a later item only",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(tt.text, tt.environ...)
			got := lines(t, err)
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], "outbox.yaml")
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
		})
	}
}

// TestWhatIsMissingUnderAnotherName: a misspelt section is not missing too.
func TestWhatIsMissingUnderAnotherName(t *testing.T) {
	t.Parallel()
	_, err := Load(t.Context(), everything(), Input{
		Files: []string{"outbox.yaml"}, ReadFile: files{"outbox.yaml": "stor: {type: memory}\nbrokrs: {main: {type: memory}}\n"}.read,
	})
	want := []string{
		`outbox.yaml:1:1 unknown key "stor"; did you mean "store"?`, `outbox.yaml:2:1 unknown key "brokrs"; did you mean "brokers"?`,
	}
	if got := lines(t, err); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHintsLeadToTheRightLevel: a key that stands at the wrong level is led to its place.
func TestHintsLeadToTheRightLevel(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"dispatcher: {topic_retry: [{match: a, retry: {max_attempts: 3}}]}": `unknown key "dispatcher.topic_retry[0].retry"; what is below it stands ` +
			`right beside "match": {match: "orders.*", max_attempts: 3, exhausted: block}`,
		`dispatcher: {topic_retry: {"orders.*": {exhausted: block}}}`:            "dispatcher.topic_retry: must be a list, such as [{match: text, ...}]",
		"dispatcher: {topic_retry: [{match: a, initial: 5s}]}":                   `did you mean "dispatcher.topic_retry[0].backoff.initial"?`,
		"dispatcher: {topic_retry: [{match: a, max_attempts: 0}]}":               "topic_retry[0].max_attempts: 0 would mean the default, 10",
		"dispatcher: {retry: {initial: 5s}}":                                     `did you mean "dispatcher.retry.backoff.initial"?`,
		"dispatcher: {retry: {topic_retry: [{match: a}]}}":                       `did you mean "dispatcher.topic_retry"?`,
		"dispatcher: {retry: {backoff: 5s}}":                                     "dispatcher.retry.backoff: must have keys below it: initial, max, multiplier",
		"dispatcher: {initial: 5s}":                                              `did you mean "dispatcher.retry.backoff.initial" or "dispatcher.outage.initial"?`,
		"dispatcher: {match: a}":                                                 `did you mean "dispatcher.topic_retry[].match"?`,
		"topic_retry: [{match: a}]":                                              `did you mean "dispatcher.topic_retry"?`,
		"store: {type: postgres, postgres: {url: x, dsn: postgres:}}":            `unknown key "store.postgres.url"; did you mean "dsn"?`,
		"store: {type: sqlite, path: a.db, sqlite: {path: a.db}}":                `did you mean "store.sqlite.path"?`,
		"broker: {type: kafka, kafka: {brokers: [k], ca_file: a}}":               `did you mean "broker.kafka.tls.ca_file"?`,
		"broker: {type: kafka, kafka: {brokers: [k], fetch_size: 3}}":            `did you mean "dispatcher.fetch_size"?`,
		"broker: {type: rabbitmq, dial_timeout: 5s, rabbitmq: {addresses: [r]}}": `did you mean "broker.rabbitmq.dial_timeout"?`,
		"broker: {type: memory, url: x}":                                         `unknown key "broker.url"; known are type, kafka, memory, rabbitmq, sqs`,
		"broker: {type: sqs, sqs: {region: x, paused_for: 3}}":                   `unknown key "broker.sqs.paused_for"; known are region,`,
		"broker: {type: kafka, kafka: {brokers: [k], ordering: none}}":           "broker.kafka.ordering: must have keys below it: strategy, hash, partitions",
	} {
		_, err := load(text)
		if got := lines(t, err); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
