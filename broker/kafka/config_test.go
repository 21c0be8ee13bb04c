package kafka

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	c := Config{}.WithDefaults()
	if c.Acks != AcksAll || c.Compression != CompressionSnappy || c.MaxMessageBytes != 1_000_012 || !c.idempotent() {
		t.Errorf("defaults: acks %q, compression %q, %d bytes, idempotent %t",
			c.Acks, c.Compression, c.MaxMessageBytes, c.idempotent())
	}
	if c.Strategy.Fingerprint() != "record-key/v1:murmur2" {
		t.Errorf("default strategy %s", c.Strategy.Fingerprint())
	}
	if err := (Config{Brokers: []string{"kafka"}}).Validate(); err != nil {
		t.Errorf("the smallest configuration is refused: %v", err)
	}
}

func TestConfigFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		Brokers: []string{""}, Acks: "most", Compression: "brotli", Strategy: ordering.RecordKey{Partitions: -1},
		MaxMessageBytes: 7, TLS: TLS{CertFile: "cert.pem"}, SASL: SASL{Mechanism: "kerberos"},
		RequestTimeout: -time.Second, NewTopic: NewTopic{Partitions: -1, ReplicationFactor: -1},
	}.Validate()
	for _, path := range []string{
		"Brokers[0]", "Acks", "Compression", "Strategy", "MaxMessageBytes", "TLS.CertFile", "SASL.Mechanism",
		"SASL.Username", "SASL.Password", "RequestTimeout", "NewTopic.Partitions", "NewTopic.ReplicationFactor",
	} {
		if !strings.Contains(err.Error(), path+": ") {
			t.Errorf("nothing about %s in: %v", path, err)
		}
	}
	var field *core.FieldError
	if !errors.As(err, &field) {
		t.Error("errors.As finds no *core.FieldError")
	}
	if err := (Config{}).Validate(); err == nil || !strings.Contains(err.Error(), "Brokers: is empty") {
		t.Errorf("without brokers: %v", err)
	}
	if err := (Config{Brokers: []string{"a"}, SASL: SASL{Username: "u"}}).Validate(); err == nil {
		t.Error("credentials without a mechanism are not refused")
	}
}

// Acknowledgement by less than all replicas loses records that the outbox has already marked as published.
func TestField_039_UnsafeAcks(t *testing.T) {
	t.Parallel()
	for _, acks := range []Acks{AcksLeader, AcksNone} {
		config := Config{Brokers: []string{"127.0.0.1:1"}, Acks: acks}
		if _, err := Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), "UnsafeAcks") {
			t.Errorf("acks=%s: %v, want a refusal that names UnsafeAcks", acks, err)
		}
		var log bytes.Buffer
		config.UnsafeAcks, config.Logger = true, slog.New(slog.NewTextHandler(&log, nil))
		b, err := Open(t.Context(), config)
		if err != nil {
			t.Fatalf("acks=%s with UnsafeAcks: %v", acks, err)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "acks="+string(acks)) {
			t.Errorf("acks=%s: no warning in the log: %q", acks, log.String())
		}
		if b.config.idempotent() {
			t.Errorf("acks=%s with a producer id: brokers refuse that", acks)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestNewChecksTheClientsAcks(t *testing.T) {
	t.Parallel()
	client, err := kgo.NewClient(kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := New(client, Config{}); err == nil || !strings.Contains(err.Error(), "RequiredAcks") {
		t.Errorf("a client with other acks than the configuration: %v", err)
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("a nil client is accepted")
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	config := Config{SASL: SASL{Mechanism: MechanismPlain, Username: "app", Password: "hunter2"}}
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("config", "password", config.SASL.Password, "sasl", fmt.Sprintf("%+v", config.SASL))
	encoded, err := json.Marshal(struct{ Password Secret }{config.SASL.Password})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{log.String(), string(encoded), config.SASL.Password.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, config.SASL.Password), fmt.Sprintf(verb, config.SASL),
			fmt.Sprintf(verb, &config.SASL))
	}
	for _, text := range texts {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
			t.Errorf("the password is in %s", text)
		}
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url  string
		want Config
	}{
		{"kafka://one", Config{Brokers: []string{"one"}}},
		{"kafka://one:9092,two,three:9094/?acks=all&compression=zstd", Config{
			Brokers: []string{"one:9092", "two", "three:9094"}, Acks: AcksAll, Compression: CompressionZstd,
		}},
		{"kafka://app:p%40ss%3A%2F@one?sasl=scram-sha-512&tls=true&tls_ca_file=/ca.pem", Config{
			Brokers: []string{"one"}, TLS: TLS{Enabled: true, CAFile: "/ca.pem"},
			SASL: SASL{Mechanism: MechanismScramSHA512, Username: "app", Password: "p@ss:/"},
		}},
		{"kafka://app:secret@one", Config{
			Brokers: []string{"one"}, SASL: SASL{Mechanism: MechanismPlain, Username: "app", Password: "secret"},
		}},
		{"kafka://one?hash=fnv1a&partitions=12&retries=-1&request_timeout=3s&idempotence=false", Config{
			Brokers: []string{"one"}, Strategy: ordering.RecordKey{Hash: ordering.FNV1a, Partitions: 12},
			Retries: -1, RequestTimeout: 3 * time.Second, DisableIdempotence: true,
		}},
	} {
		got, err := ParseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
		} else if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.url, got, c.want)
		}
	}
}

func TestParseURLFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"http://one", "kafka://"},
		{"kafka://", "Brokers"},
		{"kafka://one?ack=all", `unknown parameter "ack"; use one of acks,`},
		{"kafka://one?acks=leader", "UnsafeAcks"},
		{"kafka://one?retries=many&tls=perhaps&dial_timeout=5", "retries: \"many\""},
		{"kafka://one?retries=many&tls=perhaps&dial_timeout=5", "tls: \"perhaps\""},
		{"kafka://one?retries=many&tls=perhaps&dial_timeout=5", "dial_timeout: \"5\""},
		{"kafka://one?acks=all&acks=all", "2 times"},
		{"kafka://app:hunter2@one/topic", "path"},
		{"kafka://app:hunter2%zz@one", "encoded"},
		{"kafka://one?a=%zz", "parameters"},
	} {
		_, err := ParseURL(c.url)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.url, err, c.want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the password is in: %v", c.url, err)
		}
	}
}

func TestTLSFilesAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	for _, tls := range []TLS{{CAFile: "missing.pem"}, {CAFile: "doc.go"}, {CertFile: "doc.go", KeyFile: "doc.go"}} {
		if _, err := Open(t.Context(), Config{Brokers: []string{"one"}, TLS: tls}); err == nil {
			t.Errorf("%+v is accepted", tls)
		}
	}
}
