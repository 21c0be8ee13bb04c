package config

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

//nolint:gochecknoglobals // a flag of the test
var update = flag.Bool("update", false, "write testdata/keys.txt anew")

// TestKeysOfEveryAdapter compares all keys with the list in testdata, so that a new or renamed field of an adapter's
// Config is seen by a person: is its key right, may a file set it, does it need a word in the documentation? Then run
// the test with -update.
func TestKeysOfEveryAdapter(t *testing.T) {
	t.Parallel()
	document, err := everything().shape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	document.leaves(nil, func(path []string) {
		if path[0] != brokersKey { // the same once more
			keys = append(keys, strings.Join(path, "."))
		}
	})
	got := strings.Join(keys, "\n") + "\n"
	const golden = "testdata/keys.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(want)), "\n")
	for _, key := range keys {
		if !slices.Contains(known, key) {
			t.Errorf("%s is new", key)
		}
	}
	for _, key := range known {
		if !slices.Contains(keys, key) {
			t.Errorf("%s has gone", key)
		}
	}
}

// TestEveryKeyHasAVariable: the names are not ambiguous, although keys have "_" in them too.
func TestEveryKeyHasAVariable(t *testing.T) {
	t.Parallel()
	document, err := everything().shape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	document.leaves(nil, func(path []string) {
		want := slices.Clone(path)
		for i, key := range want {
			if key == "*" {
				want[i] = "any"
			}
		}
		name := shout(strings.Join(want, "_"))
		if got := resolve(name, document, nil); !slices.Equal(got, want) {
			t.Errorf("OUTBOX_%s means %v, want %v", name, got, want)
		}
		if names[name] {
			t.Errorf("OUTBOX_%s is there twice", name)
		}
		names[name] = true
		if notOurs.MatchString(envPrefix + name) {
			t.Errorf("OUTBOX_%s is ignored", name)
		}
	})
}

func TestKeysOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
topics: {"Order.Item": a, order: b}
brokers: {main_type: {type: memory}}
routes: [{match: "*", broker: main_type}]
`, "OUTBOX_TOPICS_ORDER_ITEM=c", "OUTBOX_TOPICS_NEW=d", "OUTBOX_BROKERS_MAIN_TYPE_MEMORY_MAX_BATCH=4")
	if c.topics["Order.Item"] != "c" || c.topics["order"] != "b" || c.topics["new"] != "d" || len(c.topics) != 3 {
		t.Errorf("topics %v", c.topics)
	}
	if len(c.brokers) != 1 || c.brokers["main_type"] == nil {
		t.Errorf("brokers %v", c.brokers)
	}
}

func TestSnake(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"Name": "name", "MaxMessageBytes": "max_message_bytes", "URL": "url", "TLS": "tls", "SASL": "sasl", "CAFile": "ca_file",
		"ClientID": "client_id", "DSN": "dsn", "VHost": "vhost", "QueueURLs": "queue_urls", "AccessKeyID": "access_key_id",
		"HTTPServerURL": "http_server_url", "LeaseTTL": "lease_ttl", "BrokersX": "brokers_x", "Strategy": "ordering",
	} {
		if got := keyOf(field); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	keys := []string{"brokers", "client_id", "acks", "tls"}
	for text, want := range map[string]string{
		"broker": "brokers", "Brokers": "brokers", "cleint_id": "client_id", "client-id": "client_id", "ack": "acks", "tsl": "tls",
		"sasl": "", "type": "", "x": "", "": "",
	} {
		if got := nearest(text, keys); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
