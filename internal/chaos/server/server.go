// Package server runs the database and the brokers of a run: instances of its own, which can be restarted and killed
// without disturbing anybody, made of the programs that scripts/services installs.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-outbox/outbox/internal/chaos/ledger"
)

// Topic is what the events are published to: the aggregate type of all of them.
const Topic = "account"

// Broker is a broker that can be restarted, read past the links before it.
type Broker interface {
	// Start makes the server and the topic, and waits until both can be used.
	Start(ctx context.Context) error
	// Restart ends the server, in order or as a crash does, waits, starts it again, and waits until it answers.
	Restart(ctx context.Context, crash bool, wait time.Duration) error
	// Stop ends it at once.
	Stop()
	// Durable says that what the server has acknowledged survives the way Restart ends it. One that writes it down only
	// a little later has to be left alone for a second before, and must not crash.
	Durable() bool
	// Links is between which addresses the link of the n-th client has to lead.
	Links(n int) (listen, upstream string)
	// Config is the broker's part of a dispatcher's configuration, in YAML, for a client of the address.
	Config(address string) string
	// Rate is how many transactions a second it keeps up with on a small machine.
	Rate() int
	// Read reads the topic until ctx ends, and reports each message, those of one key in the order that the broker has
	// them in, or with their ranks. One that the broker itself hands over a second time may be reported again.
	Read(ctx context.Context, arrived func(Message))
}

// Message is one that arrived.
type Message struct {
	Payload []byte
	Rank    ledger.Rank
	// Place is what the broker says about it, for a person: where it lies and how often it was handed over.
	Place string
}

// New makes a broker by its name, for some clients, with its files in a folder. Start starts it.
func New(ctx context.Context, name, dir string, clients int, ports *Ports) (Broker, error) {
	switch name {
	case "kafka":
		return newKafka(ctx, dir, clients, ports)
	case "rabbitmq":
		return newRabbitMQ(ctx, dir, clients, ports)
	case "sqs":
		return newElasticMQ(ctx, dir, clients, ports)
	}
	return nil, fmt.Errorf("unknown broker %q; use one of %v", name, Names())
}

// usualRate is the rate of a broker that is not the bottleneck.
const usualRate = 200

// Names are the names of all brokers.
func Names() []string { return []string{"kafka", "rabbitmq", "sqs"} }

// Ports hands out ports on which nobody listens, each once. The zero value is ready to use, by one goroutine.
//
// They lie below those that systems give to outgoing connections: one of those could take the port of a server while
// that is away.
type Ports struct{ next int }

const firstPort, lastPort = 21000, 32000

func (p *Ports) take(ctx context.Context, n int) (ports []int, err error) {
	for ; p.next < lastPort-firstPort && len(ports) < n; p.next++ {
		// Two runs side by side begin at different places.
		port := firstPort + (os.Getpid()*17+p.next)%(lastPort-firstPort)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	if len(ports) < n {
		return nil, fmt.Errorf("no %d free ports between %d and %d", n, firstPort, lastPort)
	}
	return ports, nil
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// until tries again until it succeeds, the process it depends on has ended, or a minute has passed.
func until(ctx context.Context, what string, ended <-chan struct{}, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("%s ended while it was waited for; see its log: %w", what, err)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", what, errors.Join(err, ctx.Err()))
		}
	}
}

// pause waits, or returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// libraries finds the Java libraries of a service that scripts/services has downloaded, and a Java.
func libraries(service string) (classPath, java string, err error) {
	root := os.Getenv("OUTBOX_SERVICES_DIR")
	if root == "" && os.Geteuid() == 0 {
		root = "/var/cache/outbox-services"
	} else if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", "", err
		}
		root = filepath.Join(cache, "outbox-services")
	}
	libs, _ := filepath.Glob(filepath.Join(root, service, "libs-*"))
	javas, _ := filepath.Glob("/usr/lib/jvm/java-17-*/bin/java")
	if found, err := exec.LookPath("java"); err == nil {
		javas = append(javas, found)
	}
	if len(libs) == 0 || len(javas) == 0 {
		return "", "", fmt.Errorf("no Java, or no libraries of %[1]s in %[2]s; `scripts/services up %[1]s` installs both", service, root)
	}
	slices.Sort(libs)
	return libs[len(libs)-1] + "/*", javas[0], nil
}
