package config

import (
	"slices"
	"strings"
	"testing"
)

func TestField_170_MisspeltKeysAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string
	}{
		{"misspelt, wrong level, repeated, no unit, negative", `
fetch_size: 10
broker:
  type: kafka
  kafka:
    broker: [kafka:9092]
    brokers: [kafka:9092]
    dial_timeout: 5
    acks: all
    acks: leader
dispatcher:
  poll_intervall: 1s
  fetch_byts: 100
  publish_size: -1
`, []string{
			`outbox.yaml:2:1 unknown key "fetch_size"; did you mean "dispatcher.fetch_size"?`,
			`outbox.yaml:6:5 unknown key "broker.kafka.broker"; did you mean "brokers"?`,
			`outbox.yaml:8:19 broker.kafka.dial_timeout: "5" has no unit; write 5ms, 5s or 5m`,
			`outbox.yaml:10:5 broker.kafka.acks: is a repeated key; the first one is at outbox.yaml:9:5`,
			`outbox.yaml:12:3 unknown key "dispatcher.poll_intervall"; did you mean "poll_min" or "poll_max"?`,
			`outbox.yaml:13:3 unknown key "dispatcher.fetch_byts"; did you mean "fetch_bytes"?`,
			`outbox.yaml:14:3 dispatcher.publish_size: is -1, must be at least 1`,
		}},
		{"two blocks", "broker:\n  type: sqs\n  sqs: {}\n  kafka: {brokers: [k]}\n", []string{
			`outbox.yaml:4:3 broker.kafka: is settings for another type than broker.type, "sqs" (outbox.yaml:2:9); keep only one block`,
		}},
		{"unknown type", "broker: {type: kafak}\nstore: {type: oracle}\n", []string{
			`outbox.yaml:1:16 broker.type: unknown "kafak"; did you mean "kafka"?`,
			`outbox.yaml:2:15 store.type: unknown "oracle"; known are memory, postgres, sqlite`,
		}},
		{"no type", "broker: {kafka: {brokers: [k]}}\nstore: {}\n", []string{
			`outbox.yaml:1:9 broker.type: is missing; did you mean "kafka"?`,
			`outbox.yaml:2:8 store.type: is missing; known are memory, postgres, sqlite`,
		}},
		{"not a section", "broker: [kafka]\nstore: hunter2\n", []string{
			`outbox.yaml:1:9 broker: must be a URL, or a type and its settings (types: kafka, memory, rabbitmq, sqs)`,
			`outbox.yaml:2:8 store: is not a URL; its scheme must be one of memory, postgres, sqlite, or give type and settings below it`,
		}},
		{"scalars", `
dispatcher: {fetch_size: many, publish_size: 99999999999999999999, poll_max: soon, outage: {multiplier: two}, name: }
store: {type: memory, memory: {json: yes, lanes: [1]}}
topics: order
broker: {type: kafka, kafka: {brokers: kafka}}
`, []string{
			`outbox.yaml:2:26 dispatcher.fetch_size: "many" is not a whole number`,
			`outbox.yaml:2:46 dispatcher.publish_size: "99999999999999999999" is too large a number`,
			`outbox.yaml:2:78 dispatcher.poll_max: "soon" is not a duration such as 250ms, 5s or 1m30s`,
			`outbox.yaml:2:105 dispatcher.outage.multiplier: "two" is not a number`,
			`outbox.yaml:2:117 dispatcher.name: has no value; leave the key out to get its default`,
			`outbox.yaml:3:38 store.memory.json: "yes" is not true or false`,
			`outbox.yaml:3:50 store.memory.lanes: must be a single value, such as 10`,
			`outbox.yaml:4:9 topics: must have keys below it`,
			`outbox.yaml:5:40 broker.kafka.brokers: must be a list, such as [text]`,
		}},
		{"a zero that means something else", "dispatcher: {retry: {max_attempts: 0}, poll_max: 0s}\n", []string{
			`outbox.yaml:1:36 dispatcher.retry.max_attempts: 0 would mean the default, 10; leave the key out for that, or say another value`,
			`outbox.yaml:1:50 dispatcher.poll_max: 0s would mean the default, 5s; leave the key out for that, or say another value`,
		}},
		{"URLs", "store: mysql://root:hunter2@db\nbroker: kafka://u:hunter2@k?colour=red&acks=some\n", []string{
			`outbox.yaml:1:8 store: unknown scheme "mysql"; known are memory, postgres, sqlite`,
			`outbox.yaml:2:9 broker.acks: unknown "some"; use "all"`,
			`unknown parameter "colour"`,
		}},
		{"no URL form", "broker: \"memory:\"\n", []string{
			`outbox.yaml:1:9 broker: has no short form as a URL; give type and settings below it`,
		}},
		{"routes", `
brokers: {main: {type: memory}}
routes: [{match: "[", broker: main}, {match: a, brokr: main}, {match: b, broker: jobs}]
`, []string{`outbox.yaml:3:49 unknown key "routes[1].brokr"; did you mean "broker"?`}},
		{"routes that lead nowhere", `
brokers: {main: {type: memory}}
routes: [{match: "[", broker: main}, {match: b, broker: jobs}]
`, []string{
			`outbox.yaml:3:11 routes[0].match: "[" is not a pattern`,
			`outbox.yaml:3:49 routes[1].broker: there is no broker "jobs"; have: [main]`,
		}},
		{"one and several", "broker: {type: memory}\nbrokers: {main: {type: memory}}\n", []string{
			`outbox.yaml:2:1 brokers: cannot stand beside broker (outbox.yaml:1:1); give one broker, or several with routes`,
		}},
		{"routes without brokers", "broker: {type: memory}\nroutes: []\n", []string{
			`outbox.yaml:2:1 routes: need brokers to lead to: {name: {type: ...}}`,
		}},
		{"not YAML", "store: {\n", []string{`outbox.yaml:1:1 is not YAML: did not find expected node content`}},
		{"a list", "- store\n", []string{`outbox.yaml:1:1 the file must be keys with values, such as "broker: ..."`}},
		{"what YAML has and this has not", "store: &s {type: memory}\nbroker: *s\n? [a]\n: b\ntopics: {<<: {a: b}, c: !vault d}\n---\nx: 1\n", []string{
			`outbox.yaml:2:9 broker: anchors and aliases have no meaning here; write the value out`,
			`outbox.yaml:2:9 broker: must be a URL, or a type and its settings (types: kafka, memory, rabbitmq, sqs)`,
			`outbox.yaml:3:3 a key must be a plain name`,
			`outbox.yaml:5:10 topics: a key must be a plain name`,
			`outbox.yaml:5:25 topics.c: the tag !vault has no meaning here`,
			`outbox.yaml:6:1 a second document begins here; a file has one`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(tt.text)
			got := lines(t, err)
			if len(got) != len(tt.want) {
				t.Errorf("%d faults, want %d:\n%s", len(got), len(tt.want), strings.Join(got, "\n"))
			}
			for _, want := range tt.want {
				if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) }) {
					t.Errorf("lacks\n\t%s\nin\n\t%s", want, strings.Join(got, "\n\t"))
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret: %v", err)
			}
		})
	}
}

// TestImpossibleMixes: what cannot work together is refused with the reason.
func TestImpossibleMixes(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{
			"SQLite with lanes", "store: {type: sqlite, sqlite: {path: a.db, lanes: 8}}",
			`outbox.yaml:1:44 unknown key "store.sqlite.lanes"; SQLite has one writer, and so one lane`,
		},
		{
			"dispatchers", "dispatcher: {dispatchers: 3}",
			`outbox.yaml:1:14 unknown key "dispatcher.dispatchers"; one process runs one dispatcher`,
		},
		{
			"SQS queue without .fifo and ordering", `broker: {type: sqs, sqs: {queue_name: "{topic}"}}`,
			`outbox.yaml:1:27 broker.sqs.queue_name: "{topic}" is no FIFO queue`,
		},
		{
			"SQS standard queue URL and ordering", `
broker: {type: sqs, sqs: {queue_urls: {order: "https://sqs.eu-west-1.amazonaws.com/1/order"}}}`,
			`outbox.yaml:2:40 broker.sqs.queue_urls.order: is no FIFO queue (its name does not end with .fifo), and only those ` +
				`keep the order that the strategy asks for; use a FIFO queue, or "ordering: {strategy: none}"`,
		},
		{
			"acks without a word", "broker: {type: kafka, kafka: {brokers: [k], acks: none}}",
			`outbox.yaml:1:45 broker.kafka.acks: "none" can lose records that the outbox has marked as published; use "all", or ` +
				`set unsafe_acks`,
		},
		{
			"shards on Kafka", "broker: {type: kafka, kafka: {brokers: [k], ordering: {strategy: shards}}}",
			`outbox.yaml:1:66 broker.kafka.ordering.strategy: this broker cannot keep the order by shards, which needs queues ` +
				`bound by shard, as RabbitMQ has them; use record_key or none`,
		},
		{
			"record keys on SQS", "broker: {type: sqs, sqs: {ordering: {strategy: record_key}}}",
			"this broker cannot keep the order by record_key, which needs partitions",
		},
		{
			"message groups on RabbitMQ", "broker: {type: rabbitmq, rabbitmq: {addresses: [r], ordering: {strategy: message_group}}}",
			"this broker cannot keep the order by message_group, which needs message groups",
		},
		{
			"settings of another strategy", "broker: {type: kafka, kafka: {brokers: [k], ordering: {strategy: none, partitions: 3}}}",
			"outbox.yaml:1:72 broker.kafka.ordering.partitions: has no meaning with the strategy none",
		},
		{
			"settings of no strategy", "broker: {type: kafka, kafka: {brokers: [k], ordering: {strategy: record_key, partition: 3}}}",
			`outbox.yaml:1:78 unknown key "broker.kafka.ordering.partition"; did you mean "partitions"?`,
		},
		{
			"an unknown strategy", "broker: {type: kafka, kafka: {brokers: [k], ordering: {strategy: key}}}",
			`outbox.yaml:1:66 broker.kafka.ordering.strategy: "key" is unknown; use record_key or none`,
		},
		{
			"no strategy", "broker: {type: kafka, kafka: {brokers: [k], ordering: {hash: crc32}}}",
			`outbox.yaml:1:55 broker.kafka.ordering.strategy: is missing; use record_key or none`,
		},
		{
			"a wrong setting", "broker: {type: kafka, kafka: {brokers: [k], ordering: {strategy: record_key, partitions: -1}}}",
			"outbox.yaml:1:45 broker.kafka.ordering: partitions: -1 is negative",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(tt.text)
			if got := lines(t, err); len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), tt.want)
			}
		})
	}
}

func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := Load(t.Context(), everything(), Input{})
	got := lines(t, err)
	if len(got) != 2 || !strings.HasPrefix(got[0], "store: is missing; give a URL in OUTBOX_STORE") ||
		!strings.HasPrefix(got[1], "broker: is missing; give a URL in OUTBOX_BROKER") {
		t.Errorf("got %q", got)
	}
	_, err = Load(t.Context(), everything(), Input{Files: []string{"none.yaml"}, ReadFile: files{}.read})
	if got := lines(t, err); len(got) != 1 || got[0] != "none.yaml cannot be read: open none.yaml: file does not exist" {
		t.Errorf("got %q", got)
	}
}
