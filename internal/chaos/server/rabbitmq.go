package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	outbox "github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/internal/chaos/process"
)

// rabbitMQ is a node with a port mapper (epmd) of its own.
type rabbitMQ struct {
	dir                string
	port, mapper, dist int
	links              []int
	server, epmd       *process.Process
}

const rabbitmqServer = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// The consumer group that reads the topic, and its queues.
const (
	group  = "chaos"
	queues = 4
)

func newRabbitMQ(ctx context.Context, dir string, clients int, free *Ports) (*rabbitMQ, error) {
	if _, err := os.Stat(rabbitmqServer); err != nil {
		return nil, fmt.Errorf("%w; `scripts/services up rabbitmq` installs it", err)
	}
	ports, err := free.take(ctx, 3+clients)
	if err != nil {
		return nil, err
	}
	return &rabbitMQ{
		dir: filepath.Join(dir, "rabbitmq"), port: ports[0], mapper: ports[1], dist: ports[2], links: ports[3:],
	}, nil
}

func (r *rabbitMQ) program(name, path string, args ...string) process.Program {
	return process.Program{
		Name: name, Path: path, Args: args, Log: r.dir + ".log",
		Env: append(os.Environ(), "HOME="+r.dir, fmt.Sprintf("ERL_EPMD_PORT=%d", r.mapper), "ERL_EPMD_ADDRESS=127.0.0.1",
			"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_CONFIG_FILE="+filepath.Join(r.dir, "rabbitmq.conf"),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(r.dir, "enabled_plugins"),
			fmt.Sprintf("RABBITMQ_NODENAME=chaos%d@localhost", r.port), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", r.dist),
			"RABBITMQ_MNESIA_BASE="+filepath.Join(r.dir, "data"), "RABBITMQ_LOG_BASE="+filepath.Join(r.dir, "log"),
			"RABBITMQ_LOGS=-", "RABBITMQ_ALLOW_INPUT=1",
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}"),
	}
}

// Start is described at [Broker].
func (r *rabbitMQ) Start(ctx context.Context) (err error) {
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"rabbitmq.conf": "listeners.tcp.1 = " + address(r.port) + "\n", "enabled_plugins": "[].\n",
	} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	r.epmd, err = process.Start(ctx, r.program("epmd", "epmd", "-port", strconv.Itoa(r.mapper), "-address", "127.0.0.1"))
	if err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	return r.declare(ctx)
}

func (r *rabbitMQ) start(ctx context.Context) (err error) {
	r.server, err = process.Start(ctx, r.program("rabbitmq", rabbitmqServer, "-noinput"))
	if err != nil {
		return err
	}
	return until(ctx, "rabbitmq", r.server.Done(), func(context.Context) error {
		conn, err := r.dial()
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// declare makes the topic as a user of the library does.
func (r *rabbitMQ) declare(ctx context.Context) error {
	broker, err := outbox.Open(ctx, outbox.Config{
		Addresses: []string{address(r.port)}, Groups: map[string][]outbox.Group{Topic: {{Name: group, Queues: queues}}},
	})
	if err != nil {
		return err
	}
	return errors.Join(broker.Declare(ctx, Topic), broker.Close(ctx))
}

func (r *rabbitMQ) dial() (*amqp.Connection, error) {
	return amqp.DialConfig("amqp://guest:guest@"+address(r.port)+"/", amqp.Config{
		Heartbeat: 2 * time.Second, Dial: amqp.DefaultDial(5 * time.Second),
	})
}

// Restart is described at [Broker].
func (r *rabbitMQ) Restart(ctx context.Context, crash bool, wait time.Duration) error {
	if err := r.server.End(endSignal(crash), 30*time.Second); err != nil {
		return err
	}
	pause(ctx, wait)
	return r.start(ctx)
}

// Stop is described at [Broker].
func (r *rabbitMQ) Stop() {
	stop(r.server)
	stop(r.epmd)
}

// Durable is described at [Broker]. Quorum queues confirm what is on disk.
func (r *rabbitMQ) Durable() bool { return true }

// Links is described at [Broker].
func (r *rabbitMQ) Links(n int) (listen, upstream string) {
	return address(r.links[n]), address(r.port)
}

// Config is described at [Broker].
func (r *rabbitMQ) Config(address string) string {
	return fmt.Sprintf("{type: rabbitmq, rabbitmq: {addresses: [%q], dial_timeout: 2s, confirm_timeout: 2500ms, heartbeat: 2s}}", address)
}

// Rate is described at [Broker].
func (r *rabbitMQ) Rate() int { return usualRate }

// Read is described at [Broker].
func (r *rabbitMQ) Read(ctx context.Context, arrived func(Message)) {
	for ctx.Err() == nil {
		if r.consume(ctx, arrived) != nil {
			pause(ctx, 200*time.Millisecond) // the server is away
		}
	}
}

// consume reads all queues over one connection, until that is lost or ctx ends.
func (r *rabbitMQ) consume(ctx context.Context, arrived func(Message)) error {
	conn, err := r.dial()
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // what was not acknowledged comes again
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(200, 0, false); err != nil {
		return err
	}
	var consuming sync.WaitGroup
	defer consuming.Wait()
	defer conn.Close() //nolint:errcheck // ends the deliveries
	for n := range queues {
		deliveries, err := ch.ConsumeWithContext(ctx, outbox.QueueName(Topic, group, 1, n), "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		consuming.Go(func() {
			for d := range deliveries {
				arrived(Message{Payload: d.Body, Place: fmt.Sprintf("queue %d, redelivered %v", n, d.Redelivered)})
				_ = d.Ack(false) // or it comes again
			}
		})
	}
	lost := conn.NotifyClose(make(chan *amqp.Error, 1))
	select {
	case <-lost: //nolint:errcheck // whatever it was
		return errors.New("the connection is lost")
	case <-ctx.Done():
		return ctx.Err()
	}
}
