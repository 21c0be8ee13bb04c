package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// connIdleTimeout keeps connections longer than the client's own 30 s, so that an event after a quiet minute does not
// wait for a new one, and shorter than load balancers keep them (5 minutes and more).
const connIdleTimeout = 3 * time.Minute

// clientOpts are the options of the client that Open makes. The client carries requests; producing is ours.
func (c Config) clientOpts() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.RequiredAcks(c.requiredAcks()),
		kgo.DialTimeout(c.DialTimeout),
		kgo.RequestTimeoutOverhead(c.RequestTimeout),
		kgo.ProduceRequestTimeout(c.RequestTimeout),
		kgo.RequestRetries(2), // enough to meet another broker; the dispatcher does the retrying
		kgo.RetryTimeout(c.RequestTimeout),
		kgo.RetryBackoffFn(func(int) time.Duration { return c.RetryBackoff }),
		kgo.ConnIdleTimeout(connIdleTimeout),
		kgo.DisableClientMetrics(), // nobody asked for telemetry to be pushed to the brokers
	}
	if c.Acks != AcksAll {
		opts = append(opts, kgo.DisableIdempotentWrite()) // the client refuses to be made otherwise
	}
	if c.AllowAutoTopicCreation {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	if !c.TLS.IsZero() {
		config, err := c.TLS.config()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	mechanism, err := c.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return append(opts, c.ClientOpts...), nil
}

func (c Config) requiredAcks() kgo.Acks {
	switch c.Acks {
	case AcksLeader:
		return kgo.LeaderAck()
	case AcksNone:
		return kgo.NoAck()
	default:
		return kgo.AllISRAcks()
	}
}

// config reads the files.
func (t TLS) config() (*tls.Config, error) {
	if t.Config != nil {
		return t.Config, nil
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the user's choice, logged at each start
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("TLS.CAFile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS.CAFile: %s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("TLS.CertFile %s: %w", t.CertFile, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil { // tell now rather than at the first connection
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}
