package rabbitmq_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
)

// node is a RabbitMQ of one test's own, for what would disturb others: restarts, memory alarms, TLS settings.
type node struct {
	dir          string
	plain, tls   string // addresses
	ca           *authority
	env          []string
	server, epmd *exec.Cmd
}

const binaries = "/usr/lib/rabbitmq/bin/"

// startNode starts a node with a port mapper of its own.
func startNode(t *testing.T) *node {
	t.Helper()
	if os.Getenv(envServer) == "" || testing.Short() {
		t.Skipf("%s is not set, or -short is", envServer)
	}
	if _, err := os.Stat(binaries + "rabbitmq-server"); err != nil {
		t.Skipf("no RabbitMQ is installed here: %v", err)
	}
	ports := freePorts(t, 4)
	n := &node{
		dir: t.TempDir(), ca: newAuthority(t),
		plain: fmt.Sprintf("127.0.0.1:%d", ports[0]), tls: fmt.Sprintf("127.0.0.1:%d", ports[1]),
	}
	n.ca.write(t, n.dir, "server", "127.0.0.1")
	n.ca.write(t, n.dir, "client", "outbox-user")
	n.write(t, "rabbitmq.conf", fmt.Sprintf(`listeners.tcp.1 = %s
listeners.ssl.1 = %s
ssl_options.cacertfile = %s
ssl_options.certfile = %s
ssl_options.keyfile = %s
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
`, n.plain, n.tls, n.file("ca.pem"), n.file("server.pem"), n.file("server.key")))
	n.write(t, "enabled_plugins", "[rabbitmq_auth_mechanism_ssl].\n")
	n.env = append(os.Environ(), "HOME="+n.dir, fmt.Sprintf("ERL_EPMD_PORT=%d", ports[2]), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_CONFIG_FILE="+n.file("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+n.file("enabled_plugins"),
		fmt.Sprintf("RABBITMQ_NODENAME=test%d@localhost", ports[0]), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", ports[3]),
		"RABBITMQ_MNESIA_BASE="+n.file("data"), "RABBITMQ_LOG_BASE="+n.file("log"), "RABBITMQ_LOGS=-",
		"RABBITMQ_ALLOW_INPUT=1", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}")
	n.epmd = n.spawn(t, "epmd", "-port", fmt.Sprint(ports[2]), "-address", "127.0.0.1")
	n.server = n.spawn(t, binaries+"rabbitmq-server", "-noinput")
	n.awaitUp(t)
	return n
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(n.file(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// spawn runs a program until the test ends.
func (n *node) spawn(t *testing.T, name string, arguments ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, arguments...)
	cmd.Env = n.env
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// awaitUp waits until the node can be talked to.
func (n *node) awaitUp(t *testing.T) {
	t.Helper()
	b := open(t, n.config())
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		err := b.Check(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node does not come up: %v", err)
		}
	}
}

// ctl runs rabbitmqctl.
func (n *node) ctl(t *testing.T, arguments ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binaries+"rabbitmqctl", arguments...)
	cmd.Env = n.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("rabbitmqctl %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

func (n *node) config() rabbitmq.Config {
	return rabbitmq.Config{
		Addresses: []string{n.plain}, Strategy: shards, Logger: slog.New(slog.DiscardHandler),
		Groups: map[string][]rabbitmq.Group{rabbitmq.EveryTopic: {{Name: group}}},
	}
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // all at the end, so that they differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if ports[i], err = strconv.Atoi(port); err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

// Everything that needs a node of its own, as starting one takes seconds.
func TestField_024_025_087_OnANodeOfItsOwn(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"TLS", n.testTLS},
		{"Field_087_MemoryAlarm", n.testMemoryAlarm},
		{"Field_024_SurvivesARestart", n.testPersistent},
		{"Field_025_TopologyMissingAfterARestart", n.testMissingTopology},
		{"RestartAndClosedConnectionsInTheMiddle", n.testRestartInTheMiddle},
		{"RestartUnderADispatcher", n.testRestartUnderADispatcher},
		{"Field_025_ADispatcherWaitsForTheTopology", n.testMissingTopologyUnderADispatcher},
	} {
		t.Run(c.name, c.run)
	}
}

func (n *node) testTLS(t *testing.T) {
	n.ctl(t, "add_user", "outbox-user", "unused")
	n.ctl(t, "set_permissions", "outbox-user", ".*", ".*", ".*")
	secure := n.config()
	secure.Addresses, secure.TLS = []string{n.tls}, rabbitmq.TLS{CAFile: n.file("ca.pem")}
	external := secure
	external.Mechanism = rabbitmq.MechanismExternal
	external.TLS.CertFile, external.TLS.KeyFile = n.file("client.pem"), n.file("client.key")
	if err := open(t, external).Declare(t.Context(), "tls"); err != nil {
		t.Fatal(err)
	}
	deliver(t, open(t, secure), spread("tls", 10)...)
	deliver(t, open(t, external), spread("tls", 10)...)
	unknown := secure
	unknown.TLS = rabbitmq.TLS{Enabled: true} // the system's authorities do not know ours
	wantError(t, publish(t, open(t, unknown), spread("tls", 1)...)[0],
		core.OutcomeRejected, core.ClassMisconfigured, core.ScopeBroker, "TLS")
	external.TLS.CertFile, external.TLS.KeyFile = "", ""
	wantError(t, publish(t, open(t, external), spread("tls", 1)...)[0],
		core.OutcomeRejected, core.ClassMisconfigured, core.ScopeBroker, "ACCESS_REFUSED")
}

// A real memory alarm: nothing counts as delivered, no call outlives its context, and all goes on when it ends.
func (n *node) testMemoryAlarm(t *testing.T) {
	b := open(t, n.config())
	if err := b.Declare(t.Context(), "alarm"); err != nil {
		t.Fatal(err)
	}
	deliver(t, b, spread("alarm", 1)...)
	n.ctl(t, "set_vm_memory_high_watermark", "0.00000001")
	restore := sync.OnceFunc(func() { n.ctl(t, "set_vm_memory_high_watermark", "0.4") })
	defer restore()
	records := spread("alarm", 50)
	batch := prepare(t, b, records...)
	blocked := false
	for !blocked { // the first call learns of it
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		for i, r := range b.PublishBatch(ctx, batch) {
			if r.Outcome == core.OutcomeDelivered {
				t.Errorf("message %d is delivered during the alarm", i)
			}
			blocked = blocked || r.Outcome == core.OutcomeSkipped
		}
		cancel()
	}
	if err := b.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "low on memory") {
		t.Errorf("Check: %v", err)
	}
	restore()
	waitFor(t, func() bool { return b.Check(t.Context()) == nil })
	deliver(t, b, records...)
}

func (n *node) restart(t *testing.T) {
	t.Helper()
	n.ctl(t, "stop_app")
	n.ctl(t, "start_app")
}

// What was confirmed is there after a restart: also in a classic queue, whose messages are lost without delivery mode
// 2.
func (n *node) testPersistent(t *testing.T) {
	s := n.attach(t)
	topic := s.topic(t)
	records := spread(topic, 5)
	deliver(t, open(t, n.config()), records...)
	n.restart(t)
	s = n.attach(t)
	s.wantLog(t, topic, records...)
	j := newJournal(len(records))
	consume(t, consumerConfig(n.config(), topic), j.handle)
	j.wait(t)
}

// A queue and its binding are gone after a restart: what is sent meanwhile is not delivered, and arrives once they are
// back.
func (n *node) testMissingTopology(t *testing.T) {
	s := n.attach(t)
	topic := s.name(t)
	s.declareTransient(t, topic)
	b := open(t, n.config())
	deliver(t, b, spread(topic, 5)...)
	n.restart(t)
	s.conn = n.attach(t).conn
	records := spread(topic, 20)
	for _, r := range publish(t, b, records...) {
		wantError(t, r, core.OutcomeRejected, core.ClassMisconfigured, core.ScopeDestination, "NO_ROUTE")
	}
	s.declareTransient(t, topic)
	deliver(t, b, records...)
	s.wantLog(t, topic, records...)
}

// declareTransient makes an exchange, and a log that a restart of the server deletes.
func (s *server) declareTransient(t *testing.T, topic string) {
	t.Helper()
	s.with(t, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(topic, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(logOf(topic), false, false, false, false, nil); err != nil {
			return err
		}
		for shard := range shards.Count {
			if err := ch.QueueBind(logOf(topic), shards.Token(shard), topic, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// The server restarts and closes all connections while messages of some keys are published, as a dispatcher does, and
// consumed: all of them arrive, in order.
func (n *node) testRestartInTheMiddle(t *testing.T) {
	config := n.config()
	b := open(t, config)
	if err := b.Declare(t.Context(), "restart"); err != nil {
		t.Fatal(err)
	}
	const keys, each = 5, 200
	var records []*core.Record
	j := newJournal(keys * each)
	consume(t, consumerConfig(config, "restart"), j.handle)
	stop := make(chan struct{})
	var trouble sync.WaitGroup
	trouble.Go(func() {
		for _, command := range []string{"close", "restart", "close", "restart", "close"} {
			select {
			case <-stop:
				return
			default:
			}
			if command == "close" {
				n.ctl(t, "close_all_connections", "a test")
			} else {
				n.restart(t)
			}
		}
	})
	for round := range each {
		batch := make([]*core.Record, keys)
		for i := range batch {
			batch[i] = brokertest.NewRecord("restart", fmt.Sprintf("key-%d", i), int64(round*keys+i+1))
		}
		records = append(records, batch...)
		for rest := batch; len(rest) > 0; {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			results := b.PublishBatch(ctx, prepare(t, b, rest...))
			cancel()
			rest = slices.DeleteFunc(slices.Clone(rest), func(r *core.Record) bool {
				return results[slices.Index(rest, r)].Outcome == core.OutcomeDelivered
			})
		}
		if round == each-1 {
			trouble.Wait() // the last calls come after the last restart
		}
	}
	close(stop)
	j.wait(t)
	j.wantOrder(t, records)
}

// attach connects as the tests of the shared server do.
func (n *node) attach(t *testing.T) *server {
	t.Helper()
	n.awaitUp(t)
	conn, err := amqp.Dial("amqp://guest:guest@" + n.plain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &server{
		url: "amqp://guest:guest@" + n.plain, conn: conn, prefix: core.NewEventID(), admin: open(t, n.config()),
		read: map[string][]brokertest.Message{}, dispose: true,
	}
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}}
}

// write issues a certificate and writes it, its key and that of the authority.
func (a *authority) write(t *testing.T, dir, file, name string) {
	t.Helper()
	a.serial++
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial + 1), Subject: pkix.Name{CommonName: name}, NotBefore: a.certificate.NotBefore,
		NotAfter: a.certificate.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		name, kind string
		certify    *x509.Certificate
		public     *ecdsa.PublicKey
		bytes      []byte
	}{
		{"ca.pem", "CERTIFICATE", a.certificate, &a.key.PublicKey, nil},
		{file + ".pem", "CERTIFICATE", leaf, &key.PublicKey, nil},
		{file + ".key", "PRIVATE KEY", nil, nil, encodedKey},
	} {
		if f.certify != nil {
			if f.bytes, err = x509.CreateCertificate(rand.Reader, f.certify, a.certificate, f.public, a.key); err != nil {
				t.Fatal(err)
			}
		}
		var text bytes.Buffer
		if err := pem.Encode(&text, &pem.Block{Type: f.kind, Bytes: f.bytes}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
