package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/internal/chaos/process"
)

// kafka is a single KRaft node. Its clients follow the address that it advertises, past any proxy; so it has, beside the
// listener for readers, one for each client that is advertised at the client's link.
type kafka struct {
	dir, java, classPath string
	direct, controller   int
	links, upstreams     []int
	server               *process.Process
}

func newKafka(ctx context.Context, dir string, clients int, free *Ports) (*kafka, error) {
	ports, err := free.take(ctx, 2+2*clients)
	if err != nil {
		return nil, err
	}
	k := &kafka{
		dir: filepath.Join(dir, "kafka"), direct: ports[0], controller: ports[1],
		links: ports[2 : 2+clients], upstreams: ports[2+clients:],
	}
	if k.classPath, k.java, err = libraries("kafka"); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *kafka) properties() string {
	listeners := []string{"DIRECT://" + address(k.direct), "CONTROLLER://" + address(k.controller)}
	advertised := listeners[:1:1]
	protocols := []string{"DIRECT:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	for n := range k.links {
		name := fmt.Sprintf("LINK%d", n)
		listeners = append(listeners, name+"://"+address(k.upstreams[n]))
		advertised = append(advertised, name+"://"+address(k.links[n]))
		protocols = append(protocols, name+":PLAINTEXT")
	}
	return strings.Join([]string{
		"process.roles=broker,controller", "node.id=1",
		"controller.quorum.voters=1@" + address(k.controller), "controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=DIRECT",
		"listeners=" + strings.Join(listeners, ","),
		"advertised.listeners=" + strings.Join(advertised, ","),
		"listener.security.protocol.map=" + strings.Join(protocols, ","),
		"log.dirs=" + filepath.Join(k.dir, "data"),
		"auto.create.topics.enable=false", "offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "",
	}, "\n")
}

func (k *kafka) program(class string, args ...string) process.Program {
	return process.Program{
		Name: "kafka", Path: k.java, Log: k.dir + ".log",
		Args: append([]string{
			"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
			"-cp", k.classPath, class,
		}, args...),
	}
}

// Start is described at [Broker].
func (k *kafka) Start(ctx context.Context) error {
	if err := os.Mkdir(k.dir, 0o700); err != nil {
		return err
	}
	config := filepath.Join(k.dir, "server.properties")
	if err := os.WriteFile(config, []byte(k.properties()), 0o600); err != nil {
		return err
	}
	const cluster = "MkU3OEVBNTcwNTJENDM2Qk"
	if err := process.Run(ctx, k.program("kafka.tools.StorageTool", "format", "-t", cluster, "-c", config)); err != nil {
		return err
	}
	if err := k.start(ctx); err != nil {
		return err
	}
	return k.withAdmin(func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, 6, 1, nil, Topic)
		return err
	})
}

func (k *kafka) start(ctx context.Context) (err error) {
	k.server, err = process.Start(ctx, k.program("kafka.Kafka", filepath.Join(k.dir, "server.properties")))
	if err != nil {
		return err
	}
	return k.withAdmin(func(admin *kadm.Client) error {
		return until(ctx, "kafka", k.server.Done(), func(ctx context.Context) error {
			_, err := admin.ListTopics(ctx)
			return err
		})
	})
}

func (k *kafka) withAdmin(do func(*kadm.Client) error) error {
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(address(k.direct)))
	if err != nil {
		return err
	}
	defer admin.Close()
	return do(admin)
}

// Restart is described at [Broker].
func (k *kafka) Restart(ctx context.Context, crash bool, wait time.Duration) error {
	if err := k.server.End(endSignal(crash), 30*time.Second); err != nil {
		return err
	}
	pause(ctx, wait)
	return k.start(ctx)
}

func endSignal(crash bool) os.Signal {
	if crash {
		return os.Kill
	}
	return syscall.SIGTERM
}

// Stop is described at [Broker].
func (k *kafka) Stop() { stop(k.server) }

func stop(p *process.Process) {
	if p != nil {
		_ = p.Kill() // its files are not needed any more
	}
}

// Durable is described at [Broker]. What a killed server wrote is in the kernel.
func (k *kafka) Durable() bool { return true }

// Links is described at [Broker].
func (k *kafka) Links(n int) (listen, upstream string) {
	return address(k.links[n]), address(k.upstreams[n])
}

// Config is described at [Broker].
func (k *kafka) Config(address string) string {
	return fmt.Sprintf("{type: kafka, kafka: {brokers: [%q], dial_timeout: 2s, request_timeout: 1s, delivery_timeout: 2500ms}}", address)
}

// Rate is described at [Broker].
func (k *kafka) Rate() int { return usualRate }

// Read is described at [Broker].
func (k *kafka) Read(ctx context.Context, arrived func(Message)) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address(k.direct)), kgo.ConsumeTopics(Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return // these options are valid
	}
	defer client.Close()
	for ctx.Err() == nil {
		// Errors are those of a server that is away; the client tries again.
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			arrived(Message{Payload: r.Value, Place: fmt.Sprintf("partition %d, offset %d", r.Partition, r.Offset)})
		})
	}
}
