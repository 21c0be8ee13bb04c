package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// The defaults of [Config], as far as they are numbers or names.
const (
	// DefaultClientID is the name that brokers see in their logs and quotas.
	DefaultClientID = "outbox"
	// DefaultMaxMessageBytes is what a record may take in a batch of its own: 1,000,012 bytes, the smallest default of
	// message.max.bytes among Kafka versions (newer ones allow 1,048,588) and Kafka's compatibles.
	DefaultMaxMessageBytes = 1_000_012
	// DefaultDialTimeout bounds making one connection.
	DefaultDialTimeout = 5 * time.Second
	// DefaultRequestTimeout bounds one request, waiting for in-sync replicas included.
	DefaultRequestTimeout = 5 * time.Second
	// DefaultDeliveryTimeout bounds one PublishBatch with its retries: less than the dispatcher's publish timeout.
	DefaultDeliveryTimeout = 9 * time.Second
	// DefaultRetries is how often a request is repeated within one PublishBatch.
	DefaultRetries = 4
	// DefaultRetryBackoff is the pause before the first repeat; it doubles with each.
	DefaultRetryBackoff = 50 * time.Millisecond
)

// Acks says how many replicas must have a record before it counts as delivered.
type Acks string

const (
	// AcksAll waits for all in-sync replicas: the default, and the only one that does not lose acknowledged records
	// when a leader fails.
	AcksAll Acks = "all"
	// AcksLeader waits for the partition's leader only. Needs Config.UnsafeAcks.
	AcksLeader Acks = "leader"
	// AcksNone waits for nothing, so that every record counts as delivered once it is written to a socket. Needs
	// Config.UnsafeAcks.
	AcksNone Acks = "none"
)

// Compression is the codec of record batches.
type Compression string

// The codecs that brokers know.
const (
	CompressionNone   Compression = "none"
	CompressionSnappy Compression = "snappy"
	CompressionLZ4    Compression = "lz4"
	CompressionZstd   Compression = "zstd"
	CompressionGzip   Compression = "gzip"
)

// Config configures a [Broker]. Brokers is the only required field.
type Config struct {
	// Brokers are addresses to start from, "host" or "host:port"; the port is 9092 when missing. The others of the
	// cluster are found through them. Ignored by New.
	Brokers []string
	// ClientID is the name that brokers see in their logs and quotas. Empty means DefaultClientID. Ignored by New.
	ClientID string
	// Acks says when a record counts as delivered. Empty means AcksAll; anything else is refused without UnsafeAcks.
	Acks Acks
	// UnsafeAcks allows Acks that can lose records which the outbox has already marked as published. A warning is
	// logged at each start.
	UnsafeAcks bool
	// DisableIdempotence gives up the producer id by which brokers recognise the repeats of a request and refuse what
	// comes late from an abandoned one. Only for clusters that do not grant IDEMPOTENT_WRITE (Kafka before 3.0). It is
	// given up as well with Acks other than AcksAll, as Kafka demands.
	DisableIdempotence bool
	// Compression is the codec of record batches. Empty means CompressionSnappy: see the package documentation.
	Compression Compression
	// Strategy maps topics and keys to topics and record keys. Nil means [ordering.RecordKey], with the Java client's
	// hash over all partitions of a topic. The hash and the pinned partitions of other strategies are those of
	// ordering.RecordKey's zero value.
	Strategy ordering.Strategy
	// MaxMessageBytes bounds what one record may take in a batch of its own, uncompressed and with its batch header
	// (61 bytes): as brokers count for message.max.bytes. 0 means DefaultMaxMessageBytes. A topic with a lower
	// max.message.bytes refuses records by itself, without harm to the neighbours.
	MaxMessageBytes int
	// TLS encrypts the connections. Ignored by New.
	TLS TLS
	// SASL authenticates us. Ignored by New.
	SASL SASL
	// DialTimeout bounds making one connection, TLS and SASL included. 0 means DefaultDialTimeout. Ignored by New.
	DialTimeout time.Duration
	// RequestTimeout bounds one request: how long a broker may wait for in-sync replicas, and how long we wait for its
	// answer beyond that. 0 means DefaultRequestTimeout.
	RequestTimeout time.Duration
	// DeliveryTimeout bounds one PublishBatch with its retries, whatever its context allows. 0 means
	// DefaultDeliveryTimeout. Keep it below the dispatcher's publish timeout to get broker errors instead of timeouts.
	DeliveryTimeout time.Duration
	// Retries is how often a request is repeated within one PublishBatch when a leader moved, a reply was lost or
	// replicas lag. 0 means DefaultRetries, less than 0 means never.
	Retries int
	// RetryBackoff is the pause before the first repeat; it doubles with each. 0 means DefaultRetryBackoff.
	RetryBackoff time.Duration
	// AllowAutoTopicCreation lets brokers create a missing topic when something is published to it, if they are
	// configured to. By default a missing topic is an error, so that a typing error does not become a topic.
	AllowAutoTopicCreation bool
	// NewTopic is what Declare gives to topics that it creates.
	NewTopic NewTopic
	// Logger receives warnings: unsafe settings, changed partition counts, renewed producer ids. Nil means
	// slog.Default.
	Logger *slog.Logger
	// ClientOpts are further options of the client, applied after our own. Ignored by New.
	ClientOpts []kgo.Opt
}

// TLS are the settings of encrypted connections. The zero value means none.
type TLS struct {
	// Enabled turns TLS on; any other field does so too.
	Enabled bool
	// CAFile holds PEM certificates to trust instead of the system's.
	CAFile string
	// CertFile and KeyFile are our certificate and its key in PEM, for mutual TLS. They are read again for each
	// connection, so that renewed ones are picked up.
	CertFile, KeyFile string
	// ServerName is the name that certificates must have; empty means that of each broker's address.
	ServerName string
	// InsecureSkipVerify accepts any certificate. A warning is logged at each start.
	InsecureSkipVerify bool
	// Config replaces all of the above.
	Config *tls.Config
}

// IsZero reports whether nothing is set, so that connections are not encrypted.
func (t TLS) IsZero() bool { return t == TLS{} }

// NewTopic describes the topics that [Broker.Declare] creates.
type NewTopic struct {
	// Partitions is the number of partitions; 0 means the cluster's default.
	Partitions int
	// ReplicationFactor is the number of replicas; 0 means the cluster's default.
	ReplicationFactor int
	// Configs are topic settings, for example "min.insync.replicas": "2".
	Configs map[string]string
}

// WithDefaults returns a copy in which every default is spelled out.
func (c Config) WithDefaults() Config {
	orElse(&c.ClientID, DefaultClientID)
	orElse(&c.Acks, AcksAll)
	orElse(&c.Compression, CompressionSnappy)
	orElse(&c.MaxMessageBytes, DefaultMaxMessageBytes)
	orElse(&c.DialTimeout, DefaultDialTimeout)
	orElse(&c.RequestTimeout, DefaultRequestTimeout)
	orElse(&c.DeliveryTimeout, DefaultDeliveryTimeout)
	orElse(&c.Retries, DefaultRetries)
	orElse(&c.RetryBackoff, DefaultRetryBackoff)
	if c.Strategy == nil {
		c.Strategy = ordering.RecordKey{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports everything wrong with the configuration, defaults applied: a *[core.FieldError] for each fault,
// joined, or nil.
func (c Config) Validate() error {
	faults := c.validateProducing()
	if len(c.Brokers) == 0 {
		faults = append(faults, fault("Brokers", "is empty; give at least one host:port"))
	}
	for i, address := range c.Brokers {
		if address == "" {
			faults = append(faults, fault(fmt.Sprintf("Brokers[%d]", i), "is empty"))
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		faults = append(faults, fault("TLS.CertFile", "and TLS.KeyFile go together; give both or none"))
	}
	faults = append(faults, c.SASL.validate()...)
	return errors.Join(faults...)
}

// validateProducing checks the fields that matter with a caller's client too.
func (c Config) validateProducing() (faults []error) {
	c = c.WithDefaults()
	bad := func(path, format string, args ...any) {
		faults = append(faults, fault(path, fmt.Sprintf(format, args...)))
	}
	switch c.Acks {
	case AcksAll:
	case AcksLeader, AcksNone:
		if !c.UnsafeAcks {
			bad("Acks", "%q can lose records that the outbox has marked as published; use %q, or set UnsafeAcks",
				c.Acks, AcksAll)
		}
	default:
		bad("Acks", "unknown %q; use %q", c.Acks, AcksAll)
	}
	if _, known := codec(c.Compression); !known {
		bad("Compression", "unknown %q; use none, snappy, lz4, zstd or gzip", c.Compression)
	}
	if strategy, ok := c.Strategy.(ordering.RecordKey); ok {
		if err := strategy.Validate(); err != nil {
			bad("Strategy", "%v", err)
		}
	}
	if c.MaxMessageBytes < minMaxMessageBytes || c.MaxMessageBytes > maxMaxMessageBytes {
		bad("MaxMessageBytes", "%d is not between %d and %d", c.MaxMessageBytes, minMaxMessageBytes, maxMaxMessageBytes)
	}
	for _, d := range []struct {
		path  string
		value time.Duration
	}{
		{"DialTimeout", c.DialTimeout},
		{"RequestTimeout", c.RequestTimeout},
		{"DeliveryTimeout", c.DeliveryTimeout},
		{"RetryBackoff", c.RetryBackoff},
	} {
		if d.value < 0 {
			bad(d.path, "%v is negative", d.value)
		}
	}
	if c.NewTopic.Partitions < 0 {
		bad("NewTopic.Partitions", "%d is negative; 0 means the cluster's default", c.NewTopic.Partitions)
	}
	if c.NewTopic.ReplicationFactor < 0 {
		bad("NewTopic.ReplicationFactor", "%d is negative; 0 means the cluster's default", c.NewTopic.ReplicationFactor)
	}
	return faults
}

func fault(path, reason string) error { return &core.FieldError{Path: path, Reason: reason} }

// idempotent says whether requests carry a producer id. Kafka demands acknowledgement by all replicas for that.
func (c Config) idempotent() bool { return c.Acks == AcksAll && !c.DisableIdempotence }
