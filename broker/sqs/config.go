package sqs

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// The defaults of [Config], as far as they are numbers or names.
const (
	// DefaultConcurrency is how many requests are in flight: see the package documentation for how it was measured.
	DefaultConcurrency = 32
	// DefaultRequestTimeout bounds one request. SQS answers within milliseconds; what has not answered after seconds
	// will not.
	DefaultRequestTimeout = 5 * time.Second
	// MaxMessageBytes is the most that SQS ever takes in one message and in one request: 1 MiB, attributes included.
	MaxMessageBytes = 1 << 20
)

const (
	topicMark     = "{topic}" // what QueueName has in place of the topic
	fifoSuffix    = ".fifo"   // what SQS demands of the name of a FIFO queue, and of no other
	localRegion   = "us-east-1"
	minMaxMessage = 1024 // the least that SQS allows for MaximumMessageSize
)

// Config configures a [Broker]. The zero value is ready to use on AWS, where the environment gives region and
// credentials.
type Config struct {
	// Region is the AWS region. Empty means what environment and profile say, or us-east-1 when Endpoint is set.
	// Ignored by New.
	Region string
	// Endpoint is the URL of a server other than that of the region: a VPC endpoint, or a local server. Ignored by New.
	Endpoint string
	// Credentials sign the requests. The zero value means the SDK's default chain: environment, profile, container and
	// instance roles. Ignored by New.
	Credentials Credentials
	// QueueURLs gives the URL of the queue of a topic. Topics that are not in it have the queue that QueueName names.
	QueueURLs map[string]string
	// QueueName is the name of the queue of a topic, with "{topic}" in the place of the topic. Empty means
	// "{topic}.fifo", or "{topic}" with ordering.None; a topic that has the suffix itself does not get it twice.
	// Characters that a queue name may not have become "_", and such a name, as one that is too long, ends with a part of
	// the topic's SHA-256, so that different topics have different queues.
	QueueName string
	// Strategy maps topics and keys to queues and message groups. Nil means [ordering.MessageGroup]. Standard queues
	// keep no order, so that they need [ordering.None]; with a FIFO queue that puts every event into a group of its own.
	Strategy ordering.Strategy
	// MaxMessageBytes bounds a message, and all the messages of one request, attributes included. 0 means the
	// MaximumMessageSize of each queue, which is read once and, when a message is larger, again.
	MaxMessageBytes int
	// GroupRuns puts several messages of a group into one request, for groups that are too busy for one message per
	// round trip. When SQS refuses one of them and takes the next, the order of that group is broken; by default that
	// cannot happen.
	GroupRuns bool
	// Concurrency bounds the requests in flight. 0 means DefaultConcurrency.
	Concurrency int
	// RequestTimeout bounds one request. 0 means DefaultRequestTimeout.
	RequestTimeout time.Duration
	// NewQueue is what Declare gives to queues that it creates.
	NewQueue NewQueue
	// Logger receives what a person should know: a queue that has gone, with the ids of the events sent to it last. Nil
	// means slog.Default.
	Logger *slog.Logger
	// OptFns are further options of the client, applied after our own. Ignored by New.
	OptFns []func(*sdk.Options)
}

// Credentials sign requests: a fixed key, or a provider.
type Credentials struct {
	// AccessKeyID and SecretAccessKey are a fixed key.
	AccessKeyID     string
	SecretAccessKey Secret
	// SessionToken belongs to a temporary key.
	SessionToken Secret
	// Provider, when not nil, is asked instead; the SDK caches what it returns until it expires.
	Provider aws.CredentialsProvider
}

// IsZero reports whether nothing is set, so that the SDK's default chain is used.
func (c Credentials) IsZero() bool {
	return c.AccessKeyID == "" && c.SecretAccessKey == "" && c.SessionToken == "" && c.Provider == nil
}

// NewQueue describes the queues that [Broker.Declare] creates.
type NewQueue struct {
	// HighThroughput lets a FIFO queue scale with its groups instead of 300 requests a second: DeduplicationScope is
	// messageGroup and FifoThroughputLimit is perMessageGroupId.
	HighThroughput bool
	// Attributes are further attributes of a queue, for example "MessageRetentionPeriod": "1209600".
	Attributes map[string]string
}

// WithDefaults returns a copy in which every default is spelled out.
func (c Config) WithDefaults() Config {
	if c.Strategy == nil {
		c.Strategy = ordering.MessageGroup{}
	}
	if c.QueueName == "" {
		c.QueueName = topicMark
		if c.ordered() {
			c.QueueName += fifoSuffix
		}
	}
	if c.Region == "" && c.Endpoint != "" {
		c.Region = localRegion
	}
	if c.Concurrency == 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// ordered says whether the strategy asks for order.
func (c Config) ordered() bool {
	_, none := c.Strategy.(ordering.None)
	return !none
}

// Validate reports everything wrong with the configuration, defaults applied: a *[core.FieldError] for each fault,
// joined, or nil.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	bad := func(path, format string, args ...any) {
		faults = append(faults, &core.FieldError{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	if c.Endpoint != "" && !isURL(c.Endpoint) {
		bad("Endpoint", "is not a URL such as https://host:port")
	}
	if credentials := c.Credentials; credentials.Provider == nil && !credentials.IsZero() &&
		(credentials.AccessKeyID == "" || credentials.SecretAccessKey == "") {
		bad("Credentials.AccessKeyID", "and Credentials.SecretAccessKey go together; give both or none")
	}
	for _, topic := range slices.Sorted(maps.Keys(c.QueueURLs)) {
		path, queue := fmt.Sprintf("QueueURLs[%q]", topic), c.QueueURLs[topic]
		switch {
		case !isURL(queue) || nameOf(queue) == "":
			bad(path, "is not a URL such as https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo")
		case c.ordered() && !isFIFO(queue):
			bad(path, "%s", needsFIFO)
		}
	}
	c.validateQueueName(bad)
	if c.MaxMessageBytes != 0 && (c.MaxMessageBytes < minMaxMessage || c.MaxMessageBytes > MaxMessageBytes) {
		bad("MaxMessageBytes", "%d is not between %d and %d; 0 means what each queue allows", c.MaxMessageBytes,
			minMaxMessage, MaxMessageBytes)
	}
	if c.Concurrency < 1 {
		bad("Concurrency", "%d is not at least 1", c.Concurrency)
	}
	if c.RequestTimeout < 0 {
		bad("RequestTimeout", "%v is negative", c.RequestTimeout)
	}
	return errors.Join(faults...)
}

const needsFIFO = "is no FIFO queue (its name does not end with .fifo), and only those keep the order that the " +
	"strategy asks for; use a FIFO queue, or ordering.None"

func (c Config) validateQueueName(bad func(path, format string, args ...any)) {
	rest := strings.TrimSuffix(c.QueueName, fifoSuffix)
	before, after, found := strings.Cut(rest, topicMark)
	switch {
	case !found || strings.Contains(after, topicMark):
		bad("QueueName", "%q does not have %s once; without it all topics would share one queue", c.QueueName, topicMark)
	case strings.ContainsFunc(before+after, illegalInName):
		bad("QueueName", "%q may only have letters, digits, '-' and '_' besides %s and .fifo", c.QueueName, topicMark)
	case maxNameBytes-len(c.QueueName)+len(topicMark) < minTopicRoom:
		bad("QueueName", "%q leaves fewer than %d of %d characters for the topic", c.QueueName, minTopicRoom, maxNameBytes)
	case c.ordered() && !isFIFO(c.QueueName):
		bad("QueueName", "%q %s", c.QueueName, needsFIFO)
	}
}

func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}
