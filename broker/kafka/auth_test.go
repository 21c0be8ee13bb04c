package kafka_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
)

// The session ends, the old credentials are refused, and the provider is asked for new ones at each connection.
func TestField_120_ExpiredCredentials(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "orders"),
		kfake.Superuser("PLAIN", "app", "today's token"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	refuseAuthentication(fake, "yesterday's token")
	p := startProxy(t, "127.0.0.1:0", fake.ListenAddrs()[0], &network{})

	var asked atomic.Int64
	var answer atomic.Value
	answer.Store("today's token")
	broker := open(t, kafka.Config{
		Brokers:        []string{p.address},
		RetryBackoff:   time.Millisecond,
		RequestTimeout: time.Second,
		ClientOpts:     viaProxy(p),
		SASL: kafka.SASL{
			Mechanism: kafka.MechanismPlain,
			Provider: func(context.Context) (kafka.Credentials, error) {
				asked.Add(1)
				if token := as[string](answer.Load()); token != "" {
					return kafka.Credentials{Username: "app", Password: kafka.Secret(token)}, nil
				}
				return kafka.Credentials{}, errors.New("the token service is down")
			},
		},
	})
	r := brokertest.NewRecord("orders", "a", 1)
	deliver(t, broker, r)

	for _, c := range []struct {
		token string
		class core.Class
	}{
		{"yesterday's token", core.ClassMisconfigured}, // refused by the broker
		{"", core.ClassUnavailable},                    // the provider fails
	} {
		answer.Store(c.token)
		before := asked.Load()
		p.cut()
		result := publish(t, broker, r)[0]
		e := publishError(t, result)
		if e.Scope != core.ScopeBroker || e.Class != c.class || result.Outcome == core.OutcomeDelivered {
			t.Errorf("token %q: %v, %v of the %v: %v", c.token, result.Outcome, e.Class, e.Scope, result.Err)
		}
		if asked.Load() == before {
			t.Errorf("token %q: the provider was not asked", c.token)
		}
		if strings.Contains(e.Error(), "token\"") || strings.Contains(e.Error(), "day's token") {
			t.Errorf("the token is in the error: %v", e)
		}
	}
	answer.Store("today's token")
	p.cut()
	deliver(t, broker, r)
}

// refuseAuthentication answers as a real broker does; the fake one only hangs up.
func refuseAuthentication(fake *kfake.Cluster, password string) {
	fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Count: -1, Err: kerr.SaslAuthenticationFailed,
		When: func(request kmsg.Request) bool {
			return bytes.Contains(as[*kmsg.SASLAuthenticateRequest](request).SASLAuthBytes, []byte(password))
		},
	})
}

func TestSASLMechanisms(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "orders"),
		kfake.Superuser("PLAIN", "plain", "one"), kfake.Superuser("SCRAM-SHA-256", "scram256", "two"),
		kfake.Superuser("SCRAM-SHA-512", "scram512", "three"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	refuseAuthentication(fake, "nobody")
	for _, s := range []kafka.SASL{
		{Mechanism: kafka.MechanismPlain, Username: "plain", Password: "one"},
		{Mechanism: kafka.MechanismScramSHA256, Username: "scram256", Password: "two"},
		{Mechanism: kafka.MechanismScramSHA512, Username: "scram512", Password: "three"},
	} {
		config := kafka.Config{Brokers: fake.ListenAddrs(), SASL: s, RequestTimeout: time.Second}
		deliver(t, open(t, config), brokertest.NewRecord("orders", "a", 1))
		config.SASL.Username, config.SASL.Password = "nobody", "nothing"
		broker := open(t, config)
		r := publish(t, broker, brokertest.NewRecord("orders", "a", 1))[0]
		if e := publishError(t, r); e.Class != core.ClassMisconfigured || e.Scope != core.ScopeBroker {
			t.Errorf("%s: %v of the %v: %v", s.Mechanism, e.Class, e.Scope, r.Err)
		}
		if err := broker.Check(t.Context()); err == nil {
			t.Errorf("%s: Check finds nothing wrong with the credentials", s.Mechanism)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server, caFile, certFile, keyFile := certificates(t)
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(server), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	r := brokertest.NewRecord("orders", "a", 1)
	config := kafka.Config{
		Brokers: fake.ListenAddrs(), RequestTimeout: time.Second,
		TLS: kafka.TLS{CAFile: caFile, CertFile: certFile, KeyFile: keyFile},
	}
	deliver(t, open(t, config), r)

	config.TLS.CAFile = ""
	result := publish(t, open(t, config), r)[0]
	if e := publishError(t, result); e.Class != core.ClassMisconfigured || e.Scope != core.ScopeBroker || e.Code != "TLS" {
		t.Errorf("an unknown authority: %v of the %v, code %s: %v", e.Class, e.Scope, e.Code, result.Err)
	}
}

// certificates makes an authority with one certificate for both sides.
func certificates(t *testing.T) (server *tls.Config, caFile, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, content := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}
	return server, certFile, certFile, keyFile
}
