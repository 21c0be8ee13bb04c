package rabbitmq_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/ordering"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	bad := rabbitmq.Config{
		Addresses: []string{""}, Mechanism: "kerberos", TLS: rabbitmq.TLS{CertFile: "a.pem"},
		Strategy: ordering.Shards{Count: -1}, Channels: -1, Window: -1, MaxMessageBytes: -1, FrameMax: 100, DialTimeout: -1,
		ConfirmTimeout: -1, Heartbeat: 1, Groups: map[string][]rabbitmq.Group{
			"orders": {{Name: "a.b", Queues: -1, DeliveryLimit: -1}, {Name: "twice"}, {Name: "twice"}}, "": nil,
		},
	}
	err := bad.Validate()
	for _, path := range []string{
		"Addresses[0]", "Mechanism", "TLS.CertFile", "Strategy", "Channels", "Window", "MaxMessageBytes", "FrameMax",
		"DialTimeout", "ConfirmTimeout", "Heartbeat", `Groups["orders"][0].Name`, `Groups["orders"][0].Queues`,
		`Groups["orders"][0].DeliveryLimit`, `Groups["orders"][2].Name`, `Groups[""]`,
	} {
		if !hasFault(err, path) {
			t.Errorf("no fault of %s in: %v", path, err)
		}
	}
	if err := (rabbitmq.Config{}).Validate(); !hasFault(err, "Addresses") {
		t.Errorf("no addresses: %v", err)
	}
	external := rabbitmq.Config{Addresses: []string{"host"}, Mechanism: rabbitmq.MechanismExternal}
	if err := external.Validate(); !hasFault(err, "Mechanism") {
		t.Errorf("external without TLS: %v", err)
	}
	if _, err := rabbitmq.Open(t.Context(), bad); err == nil {
		t.Error("Open takes an invalid configuration")
	}
}

func TestConfigWithDefaults(t *testing.T) {
	t.Parallel()
	groups := map[string][]rabbitmq.Group{"orders": {{Name: "billing"}}}
	given := rabbitmq.Config{Addresses: []string{"a", "b:1", "[::1]"}, Groups: groups}
	c := given.WithDefaults()
	if want := []string{"a:5672", "b:1", "[::1]:5672"}; !reflect.DeepEqual(c.Addresses, want) {
		t.Errorf("addresses %q, want %q", c.Addresses, want)
	}
	if g := c.Groups["orders"][0]; g.Queues != 1 || g.DeliveryLimit != rabbitmq.DefaultDeliveryLimit {
		t.Errorf("group %+v", g)
	}
	if groups["orders"][0].Queues != 0 || given.Addresses[0] != "a" {
		t.Error("WithDefaults has changed what it was given")
	}
	if c.Username != "guest" || c.Password != "guest" || c.VHost != "/" || c.Strategy != (ordering.Shards{}) {
		t.Errorf("defaults %+v", c)
	}
	given.TLS.Enabled = true
	if got := given.WithDefaults().Addresses[0]; got != "a:5671" {
		t.Errorf("address with TLS %q", got)
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	got, err := rabbitmq.ParseURL("rabbitmqs://us%40er:p%3Aw%2F@a,b:99/my%2Fhost?shards=64&generation=2&channels=8&" +
		"window=9&transient=true&accept_unroutable=x,y&max_message_bytes=1000&frame_max=8192&dial_timeout=1s&" +
		"confirm_timeout=2s&heartbeat=3s&disable_lock=true&connection_name=me&tls_server_name=srv&groups=billing:4,audit")
	if err != nil {
		t.Fatal(err)
	}
	want := rabbitmq.Config{
		Addresses: []string{"a", "b:99"}, VHost: "my/host", Username: "us@er", Password: "p:w/",
		TLS: rabbitmq.TLS{Enabled: true, ServerName: "srv"}, ConnectionName: "me",
		Strategy: ordering.Shards{Count: 64, Generation: 2}, Channels: 8, Window: 9, Transient: true,
		AcceptUnroutable: []string{"x", "y"}, MaxMessageBytes: 1000, FrameMax: 8192, DialTimeout: time.Second,
		ConfirmTimeout: 2 * time.Second, Heartbeat: 3 * time.Second, DisableLock: true,
		Groups: map[string][]rabbitmq.Group{rabbitmq.EveryTopic: {{Name: "billing", Queues: 4}, {Name: "audit"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for url, vhost := range map[string]string{
		"amqp://h": "", "amqp://h/": "", "rabbitmq://h/%2F": "/", "amqps://h/v?ordering=none": "v",
	} {
		if got, err := rabbitmq.ParseURL(url); err != nil || got.VHost != vhost {
			t.Errorf("%s: virtual host %q, %v; want %q", url, got.VHost, err, vhost)
		}
	}
}

func TestParseURLFaults(t *testing.T) {
	t.Parallel()
	for url, words := range map[string][]string{
		"kafka://h":            {"does not begin with"},
		"amqp://":              {"Addresses"},
		"amqp://h/a/b":         {"virtual host"},
		"amqp://u:s3cret%zz@h": {"not encoded"},
		"amqp://h?windw=1&channels=x&window=1&window=2": {`unknown parameter "windw"`, "window", "channels", "given 2 times"},
		"amqp://h?transient=perhaps&heartbeat=5":        {"true or false", "such as 5s"},
		"amqp://h?ordering=none&shards=5":               {"no meaning"},
		"amqp://h?ordering=strict":                      {`unknown "strict"`},
		"amqp://h?groups=a.b":                           {"Groups"},
		"amqp://h?%zz":                                  {"not those of a URL"},
	} {
		_, err := rabbitmq.ParseURL(url)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v, want %q in it", url, err, word)
			}
		}
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	c := rabbitmq.Config{Password: "xyzzy"}
	encoded, err := json.Marshal(c.Password)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprintf("%v %+v %#v %q %s %x", c, c, c, c.Password, c.Password, c.Password), string(encoded),
		c.Password.String(), c.Password.LogValue().String(),
	} {
		if strings.Contains(text, "xyzzy") || !strings.Contains(text, "***") {
			t.Errorf("printed as %s", text)
		}
	}
}
