package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestPrintHasEveryKey: whatever the types are, no key of theirs, of the dispatcher or of the webhook is left out.
func TestPrintHasEveryKey(t *testing.T) {
	t.Parallel()
	stores := map[string]string{"memory": "{}", "postgres": "{dsn: postgres://u:hunter2@h/d}", "sqlite": "{path: a.db}"}
	brokers := map[string]string{
		"kafka": "{brokers: [k], sasl: {mechanism: plain, username: u, password: hunter2}}", "memory": "{}", "rabbitmq": "{addresses: [r]}", "sqs": "{region: eu}",
	}
	registry := everything()
	if len(stores) != len(registry.Stores) || len(brokers) != len(registry.Brokers) {
		t.Fatal("not all types are here")
	}
	document, err := registry.shape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for store, storeBlock := range stores {
		for broker, brokerBlock := range brokers {
			printed := mustLoad(t, fmt.Sprintf("store: {type: %s, %s: %s}\nbroker: {type: %s, %s: %s}\n"+
				"dispatcher: {topic_retry: [{match: a}]}\n", store, store, storeBlock, broker, broker, brokerBlock)).String()
			if strings.Contains(printed, "hunter2") {
				t.Errorf("a secret in\n%s", printed)
			}
			var root map[string]any
			text := strings.NewReplacer("\n# nobody is told", "\n# nobody is told", "\n# ", "\n").Replace(printed) // what is a comment, too
			if err := yaml.Unmarshal([]byte(text), &root); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			document.leaves(nil, func(path []string) {
				isOther := slices.Contains([]string{brokersKey, routesKey}, path[0]) ||
					len(path) == 1 && (path[0] == storeKey || path[0] == brokerKey) || // as a URL
					len(path) > 2 && (path[0] == storeKey && path[1] != store || path[0] == brokerKey && path[1] != broker)
				if !isOther && !stands(root, path) && !ofAnotherStrategy(path, broker) {
					t.Errorf("%s and %s: %s is not there", store, broker, strings.Join(path, "."))
				}
			})
			if t.Failed() {
				t.Fatalf("printed was\n%s", printed)
			}
		}
	}
}

// stands tells whether there is something at a path. A list or map of the user's may be empty.
func stands(at any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	switch at := at.(type) {
	case map[string]any:
		below, ok := at[path[0]]
		return path[0] == "*" || ok && stands(below, path[1:])
	case []any:
		return path[0] == "0" && (len(at) == 0 || stands(at[0], path[1:]))
	default:
		return false
	}
}

// ofAnotherStrategy tells whether a key has a meaning with a strategy that is not the default one: the broker in memory
// can keep all of them.
func ofAnotherStrategy(path []string, broker string) bool {
	return broker == "memory" && len(path) == 4 && path[2] == orderingKey && slices.Contains([]string{"count", "generation"}, path[3])
}

// What topic_retry leaves open comes from retry, not from the defaults.
func TestPrintTellsWhatTopicRetryTakesOver(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
dispatcher:
  retry: {max_attempts: 20}
  topic_retry: [{match: "a.*", exhausted: block, backoff: {max: 5m}}]
`)
	_, section, _ := strings.Cut(c.String(), "topic_retry:")
	section, rest, _ := strings.Cut(section, "outage:")
	want := "- match: a.* # outbox.yaml:4:25 max_attempts: 20 # dispatcher.retry backoff: initial: 200ms # dispatcher.retry " +
		"max: 5m0s # outbox.yaml:4:65 multiplier: 2 # dispatcher.retry exhausted: block # outbox.yaml:4:43 " +
		`dead_letter_suffix: "" # dispatcher.retry`
	if got := strings.Join(strings.Fields(section), " "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !strings.Contains(rest, "# default") || strings.Contains(rest, "# dispatcher.retry") {
		t.Errorf("behind it\n%s", rest)
	}
}
