package rabbitmq

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// The defaults of [Config], as far as they are numbers or names.
const (
	// DefaultVHost is the virtual host that every server has.
	DefaultVHost = "/"
	// DefaultConnectionName is the name that the server's tools show for our connections.
	DefaultConnectionName = "outbox"
	// DefaultChannels is how many calls publish at the same time. More than 4 were not faster against one node.
	DefaultChannels = 4
	// DefaultWindow is how many messages of a call may be unconfirmed: a whole batch of the dispatcher's usual size, as
	// quorum queues confirm many at once.
	DefaultWindow = 512
	// DefaultMaxMessageBytes is 16 MiB: the smallest default of max_message_size among RabbitMQ versions (before 4.0
	// it was 128 MiB).
	DefaultMaxMessageBytes = 16 << 20
	// DefaultFrameMax is RabbitMQ's own default of frame_max, 128 KiB.
	DefaultFrameMax = 128 << 10
	// DefaultDialTimeout bounds making one connection.
	DefaultDialTimeout = 5 * time.Second
	// DefaultConfirmTimeout bounds one PublishBatch.
	DefaultConfirmTimeout = 30 * time.Second
	// DefaultHeartbeat is how often both sides say that they are alive; after about two silent ones the connection
	// counts as lost.
	DefaultHeartbeat = 10 * time.Second
	// DefaultDeliveryLimit is how often a message is delivered before it becomes a dead letter.
	DefaultDeliveryLimit = 20
)

// The bounds of frame_max: AMQP's smallest frame, and what nobody needs.
const (
	minFrameMax = 4096
	maxFrameMax = 64 << 20
)

// EveryTopic is the key of Config.Groups for topics that have no entry of their own.
const EveryTopic = "*"

// Mechanism is how the server authenticates us.
type Mechanism string

const (
	// MechanismPlain sends user name and password: use TLS.
	MechanismPlain Mechanism = "plain"
	// MechanismExternal takes the user from our TLS certificate (the plugin rabbitmq_auth_mechanism_ssl).
	MechanismExternal Mechanism = "external"
)

// Config configures a [Broker]. Addresses is the only required field.
type Config struct {
	// Addresses are the nodes of the cluster, "host" or "host:port"; the port is 5672, or 5671 with TLS, when missing.
	// They are tried in turn. Ignored by New.
	Addresses []string
	// VHost is the virtual host. Empty means DefaultVHost. Ignored by New.
	VHost string
	// Username and Password are the credentials of MechanismPlain. Both empty mean guest and guest, whom servers
	// accept from their own machine only. Ignored by New.
	Username string
	Password Secret
	// Mechanism is how the server authenticates us. Empty means MechanismPlain. Ignored by New.
	Mechanism Mechanism
	// TLS encrypts the connection. Ignored by New.
	TLS TLS
	// ConnectionName is what the server's tools show for our connections. Empty means DefaultConnectionName. Ignored
	// by New.
	ConnectionName string
	// Strategy maps topics and keys to exchanges and routing keys. Nil means [ordering.Shards]. With [ordering.None]
	// the routing key is empty, and the order is that of a queue bound with an empty key.
	Strategy ordering.Strategy
	// Channels is how many PublishBatch calls run at the same time, each on a channel of its own. 0 means
	// DefaultChannels.
	Channels int
	// Window is how many messages of a call may be sent and not yet confirmed. 0 means DefaultWindow.
	Window int
	// Transient publishes with delivery mode 1: a restart of the server may lose what it has confirmed. By default
	// messages are persistent.
	Transient bool
	// AcceptUnroutable are topics whose messages count as delivered when the server returns them because no queue is
	// bound: for exchanges that report so although they route later (rabbitmq-delayed-message-exchange), and for topics
	// that nobody has to listen to. Broker.Returned counts them. EveryTopic accepts it for all. By default an
	// unroutable message is not delivered.
	AcceptUnroutable []string
	// MaxMessageBytes bounds the payload. 0 means DefaultMaxMessageBytes. Keep it at or below the server's
	// max_message_size.
	MaxMessageBytes int
	// FrameMax is the frame size that we ask the server for; the smaller of ours and its is used. All headers of a
	// message have to fit into one frame. 0 means DefaultFrameMax. Ignored by New.
	FrameMax int
	// DialTimeout bounds making one connection, TLS and authentication included. 0 means DefaultDialTimeout. Ignored
	// by New.
	DialTimeout time.Duration
	// ConfirmTimeout bounds one PublishBatch, whatever its context allows. 0 means DefaultConfirmTimeout. Keep it
	// below the dispatcher's publish timeout.
	ConfirmTimeout time.Duration
	// Heartbeat is the interval of heartbeats, in whole seconds; the smaller of ours and the server's is used. 0 means
	// DefaultHeartbeat. Ignored by New.
	Heartbeat time.Duration
	// DisableLock gives up the exclusive queue "outbox.publisher.<id>" by which a new connection waits until the
	// server is done with the one before it: only for users who may not be given the right to configure that name. A
	// message of a lost connection can then be stored after a later one of its key was. Ignored by New.
	DisableLock bool
	// Groups are the consumer groups of each topic, for Declare, Verify and Fence; publishing does not look at them.
	// The entry EveryTopic is for topics without an entry of their own.
	Groups map[string][]Group
	// Logger receives warnings: blocked connections, unsafe settings. Nil means slog.Default.
	Logger *slog.Logger
}

// Group is a consumer group of a topic: queues that together get every message of the topic.
type Group struct {
	// Name is part of the names of its queues: letters, digits, '_' and '-', at most 64. Required.
	Name string
	// Queues is how many queues the virtual shards are spread over, and so how many consumers of the group can work at
	// the same time. Fixed within one generation of [ordering.Shards]. 0 means 1.
	Queues int
	// DeliveryLimit is how often a message is delivered before it becomes a dead letter. 0 means
	// DefaultDeliveryLimit. There is no "unlimited": without a limit a quorum queue puts a message that was refused
	// behind the others.
	DeliveryLimit int
	// DeadLetterExchange takes the dead letters. Empty means "<topic>.<group>.dead", which Declare makes with a queue
	// of the same name; one that is named here has to exist, with a queue bound to it.
	DeadLetterExchange string
}

// WithDefaults returns a copy in which every default is spelled out.
func (g Group) WithDefaults() Group {
	orElse(&g.Queues, 1)
	orElse(&g.DeliveryLimit, DefaultDeliveryLimit)
	return g
}

// WithDefaults returns a copy in which every default is spelled out.
func (c Config) WithDefaults() Config {
	orElse(&c.VHost, DefaultVHost)
	if c.Mechanism != MechanismExternal && c.Username == "" && c.Password == "" {
		c.Username, c.Password = "guest", "guest"
	}
	orElse(&c.Mechanism, MechanismPlain)
	orElse(&c.ConnectionName, DefaultConnectionName)
	orElse(&c.Channels, DefaultChannels)
	orElse(&c.Window, DefaultWindow)
	orElse(&c.MaxMessageBytes, DefaultMaxMessageBytes)
	orElse(&c.FrameMax, DefaultFrameMax)
	orElse(&c.DialTimeout, DefaultDialTimeout)
	orElse(&c.ConfirmTimeout, DefaultConfirmTimeout)
	orElse(&c.Heartbeat, DefaultHeartbeat)
	if c.Strategy == nil {
		c.Strategy = ordering.Shards{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Addresses = slices.Clone(c.Addresses)
	for i, address := range c.Addresses {
		c.Addresses[i] = withPort(address, !c.TLS.IsZero())
	}
	groups := make(map[string][]Group, len(c.Groups))
	for topic, list := range c.Groups {
		groups[topic] = slices.Clone(list)
		for i, g := range list {
			groups[topic][i] = g.WithDefaults()
		}
	}
	c.Groups = groups
	return c
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func withPort(address string, encrypted bool) string {
	if _, _, err := net.SplitHostPort(address); err == nil || address == "" {
		return address
	}
	port := "5672"
	if encrypted {
		port = "5671"
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port)
}

// groupsOf returns the consumer groups of a topic.
func (c Config) groupsOf(topic string) []Group {
	if groups, ok := c.Groups[topic]; ok {
		return groups
	}
	return c.Groups[EveryTopic]
}

// Validate reports everything wrong with the configuration, defaults applied: a *[core.FieldError] for each fault,
// joined, or nil.
func (c Config) Validate() error {
	faults := c.validatePublishing()
	if len(c.Addresses) == 0 {
		faults = append(faults, fault("Addresses", "is empty; give at least one host or host:port"))
	}
	for i, address := range c.Addresses {
		if address == "" {
			faults = append(faults, fault(fmt.Sprintf("Addresses[%d]", i), "is empty"))
		}
	}
	switch c.Mechanism {
	case "", MechanismPlain:
	case MechanismExternal:
		if c.TLS.IsZero() {
			faults = append(faults, fault("Mechanism", "external needs TLS with a certificate of ours"))
		}
	default:
		faults = append(faults, fault("Mechanism", fmt.Sprintf("unknown %q; use %s or %s",
			c.Mechanism, MechanismPlain, MechanismExternal)))
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		faults = append(faults, fault("TLS.CertFile", "and TLS.KeyFile go together; give both or none"))
	}
	if c.Heartbeat != 0 && c.Heartbeat < time.Second {
		faults = append(faults, fault("Heartbeat", fmt.Sprintf("%v is less than 1s, the unit of AMQP", c.Heartbeat)))
	}
	return errors.Join(faults...)
}

// validatePublishing checks the fields that matter with a caller's connection too.
func (c Config) validatePublishing() (faults []error) {
	c = c.WithDefaults()
	if s, ok := c.Strategy.(ordering.Shards); ok {
		if err := s.Validate(); err != nil {
			faults = append(faults, fault("Strategy", err.Error()))
		}
	}
	const many = 1 << 16
	for _, n := range []struct {
		path            string
		value, min, max int
	}{
		{"Channels", c.Channels, 1, 1024},
		{"Window", c.Window, 1, many},
		{"MaxMessageBytes", c.MaxMessageBytes, 1, 512 << 20},
		{"FrameMax", c.FrameMax, minFrameMax, maxFrameMax},
	} {
		if n.value < n.min || n.value > n.max {
			faults = append(faults, fault(n.path, fmt.Sprintf("%d is not between %d and %d", n.value, n.min, n.max)))
		}
	}
	for _, d := range []struct {
		path  string
		value time.Duration
	}{{"DialTimeout", c.DialTimeout}, {"ConfirmTimeout", c.ConfirmTimeout}} {
		if d.value < 0 {
			faults = append(faults, fault(d.path, fmt.Sprintf("%v is negative", d.value)))
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(c.Groups)) {
		faults = append(faults, validateGroups(topic, c.Groups[topic])...)
	}
	return faults
}

func validateGroups(topic string, groups []Group) (faults []error) {
	if topic == "" {
		faults = append(faults, fault(`Groups[""]`, "is an empty topic; use EveryTopic for all"))
	}
	names := map[string]bool{}
	for i, g := range groups {
		bad := func(field, format string, args ...any) {
			faults = append(faults, fault(fmt.Sprintf("Groups[%q][%d].%s", topic, i, field), fmt.Sprintf(format, args...)))
		}
		if reason := badGroupName(g.Name); reason != "" {
			bad("Name", "%q %s", g.Name, reason)
		}
		if names[g.Name] {
			bad("Name", "%q is given twice", g.Name)
		}
		names[g.Name] = true
		if g.Queues < 1 || g.Queues > ordering.MaxShards {
			bad("Queues", "%d is not between 1 and %d", g.Queues, ordering.MaxShards)
		}
		if g.DeliveryLimit < 1 {
			bad("DeliveryLimit", "%d is less than 1", g.DeliveryLimit)
		}
	}
	return faults
}

func fault(path, reason string) error { return &core.FieldError{Path: path, Reason: reason} }
