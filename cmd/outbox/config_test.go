package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// writeConfig writes a file and returns its name.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRunFromAFile(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	_, kafka := startKafka(t)
	file := writeConfig(t, fmt.Sprintf(`
store: {type: sqlite, sqlite: {path: %q}}
broker:
  type: kafka
  kafka: {brokers: [%q]}
dispatcher: {name: from-the-file, fetch_size: 50}
`, filepath.ToSlash(shop.path), strings.TrimPrefix(kafka, "kafka://")))
	if got := outbox(t, "migrate", "up", "-c", file); got.code != 0 {
		t.Fatalf("migrate up: %+v", got)
	}
	shop.insert(t, 30, 4)
	if got := outbox(t, "run", "--once", "--config", file); got.code != 0 || !strings.Contains(got.errOut, `"published":30`) ||
		!strings.Contains(got.errOut, `"outbox":"from-the-file"`) {
		t.Errorf("got %+v", got)
	}
	checkOrder(t, kafka, 30)

	// Flags win: another broker, another name.
	shop.insert(t, 5, 2)
	_, other := startKafka(t)
	p := start(t, "run", "-c", file, "--broker", other, "--name", "from-a-flag")
	p.waitFor(t, `"outbox":"from-a-flag"`)
	if numbers, _ := consume(t, other, 5); len(numbers) != 2 {
		t.Errorf("got %v at the other broker", numbers)
	}
	if code := p.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM code %d, want 0", code)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	good := writeConfig(t, "store: \"sqlite:shop.db\"\nbroker: \"kafka://kafka:9092\"\n")
	if got := outbox(t, "config", "validate", "-c", good); got.code != 0 || got.out != "" || !strings.Contains(got.errOut, "no faults") {
		t.Errorf("got %+v; want code 0", got)
	}
	bad := writeConfig(t, `
store: {type: postgres, postgres: {dsn: "postgres://app:hunter2@db:port/shop", lanes: -1}}
broker: {type: kafka, kafka: {broker: [kafka], acks: leader}}
dispatcher: {poll_max: 5}
`)
	got := outbox(t, "config", "validate", "-c", bad, "--lease-ttl", "1ms")
	if got.code != 2 || got.out != "" || strings.Contains(got.errOut, "hunter2") {
		t.Errorf("got %+v; want code 2 and no secret", got)
	}
	for _, want := range []string{
		":2:36 store.postgres.dsn: ", ":2:80 store.postgres.lanes: -1", `:3:31 unknown key "broker.kafka.broker"; did you mean "brokers"?`,
		":3:48 broker.kafka.acks: ", `:4:24 dispatcher.poll_max: "5" has no unit`, "--lease-ttl dispatcher.lease_ttl: ",
	} {
		if !strings.Contains(got.errOut, want) {
			t.Errorf("lacks %q in\n%s", want, got.errOut)
		}
	}
	for _, args := range [][]string{{"-c", "/none.yaml"}, {"validate.yaml"}, {"-c", writeConfig(t, "store: \"sqlite:a.db\"")}} {
		if got := outbox(t, append([]string{"config", "validate"}, args...)...); got.code != 2 {
			t.Errorf("%v: got %+v; want code 2", args, got)
		}
	}
}

func TestConfigValidateFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, "store: {type: sqlite}\nbroker: {type: memory}\n")
	if got := outbox(t, "config", "validate", "-c", file); got.code != 2 || !strings.Contains(got.errOut, "store.sqlite.path: is missing") {
		t.Errorf("got %+v", got)
	}
	file = writeConfig(t, "store: {type: postgres}\nbroker: {type: memory}\n")
	if got := outbox(t, "config", "validate", "-c", file); got.code != 2 || !strings.Contains(got.errOut, "store.postgres.dsn: is missing") {
		t.Errorf("got %+v", got)
	}
}

func TestConfigPrint(t *testing.T) {
	t.Setenv("OUTBOX_DISPATCHER_POLL_MAX", "700ms")
	file := writeConfig(t, "store: \"postgres://app:hunter2@db/shop?lanes=8\"\nbroker: {type: sqs, sqs: {region: eu-west-1}}\n")
	got := outbox(t, "config", "print", "-c", file, "--fetch-size", "77")
	if got.code != 0 || strings.Contains(got.out+got.errOut, "hunter2") {
		t.Errorf("got %+v", got)
	}
	printed := strings.Join(strings.Fields(got.out), " ")
	for _, want := range []string{
		"dsn: postgres://app:***@db/shop # " + file + ":1:8", "lanes: 8 # " + file + ":1:8", "region: eu-west-1 # " + file + ":2:35",
		"fetch_size: 77 # --fetch-size", "poll_max: 700ms # OUTBOX_DISPATCHER_POLL_MAX", "lease_ttl: 15s # default",
		"strategy: message_group # default",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("lacks %q in\n%s", want, got.out)
		}
	}
}

// TestDocumentedFilesAreValid: the YAML in docs/configuration.md is without faults.
func TestDocumentedFilesAreValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Fatalf("%d YAML blocks: are they still recognised?", len(blocks))
	}
	for _, block := range blocks {
		if got := outbox(t, "config", "validate", "-c", writeConfig(t, block[1])); got.code != 0 {
			t.Errorf("%s\nin\n%s", got.errOut, block[1])
		}
	}
}

// TestField_166_InvalidDSN: whatever is wrong with a DSN, the fault does not repeat it.
func TestField_166_InvalidDSN(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"hunter2", "password = hunter2 port=x", "host=h password='hunter2", "postgres://app:hunter2%zz@h/db",
		"postgres://app:hunter2/@h/db", "postgres://app:hunter2@h/db?sslmode=bad", "postgres://app:`: hunter2@h:x/db",
	} {
		for _, store := range []string{"{type: postgres, postgres: {dsn: \"${DSN}\"}}", "\"${DSN}\""} {
			text := strings.ReplaceAll("store: "+store+"\nbroker: {type: memory}\n", "${DSN}", dsn)
			if got := outbox(t, "config", "validate", "-c", writeConfig(t, text)); got.code != 2 || strings.Contains(got.errOut, "hunter2") {
				t.Errorf("%s: got %+v", text, got)
			}
		}
	}
}
