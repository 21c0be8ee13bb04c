package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/internal/chaos/ledger"
	"github.com/go-outbox/outbox/internal/chaos/process"
)

// elasticMQ speaks the SQS API and keeps its messages on disk.
type elasticMQ struct {
	dir, java, classPath string
	port                 int
	links                []int
	transport            *http.Transport
	client               *sqs.Client
	server               *process.Process
	reading              sync.RWMutex // held by receivers, and for writing by a restart
}

func newElasticMQ(ctx context.Context, dir string, clients int, free *Ports) (*elasticMQ, error) {
	ports, err := free.take(ctx, 1+clients)
	if err != nil {
		return nil, err
	}
	e := &elasticMQ{dir: filepath.Join(dir, "sqs"), port: ports[0], links: ports[1:], transport: &http.Transport{}}
	if e.classPath, e.java, err = libraries("sqs"); err != nil {
		return nil, err
	}
	e.client = sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + address(e.port)), Retryer: aws.NopRetryer{},
		HTTPClient:  &http.Client{Transport: e.transport, Timeout: 10 * time.Second},
		Credentials: credentials.NewStaticCredentialsProvider("chaos", "chaos", ""),
	})
	return e, nil
}

// Start is described at [Broker].
func (e *elasticMQ) Start(ctx context.Context) error {
	if err := os.Mkdir(e.dir, 0o700); err != nil {
		return err
	}
	config := fmt.Sprintf(`include classpath("application.conf")
node-address { protocol = http, host = 127.0.0.1, port = %[1]d, context-path = "" }
rest-sqs { enabled = true, bind-port = %[1]d, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
messages-storage { enabled = true, uri = "jdbc:h2:%[2]s/elasticmq" }
queues-storage { enabled = true, path = "%[2]s/queues.conf" }
`, e.port, e.dir)
	if err := os.WriteFile(filepath.Join(e.dir, "elasticmq.conf"), []byte(config), 0o600); err != nil {
		return err
	}
	if err := e.start(ctx); err != nil {
		return err
	}
	_, err := e.client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String(Topic + ".fifo"),
		// What was handed to a reader whose connection broke comes again after the timeout, and its group waits.
		Attributes: map[string]string{"FifoQueue": "true", "VisibilityTimeout": "5"},
	})
	return err
}

func (e *elasticMQ) start(ctx context.Context) (err error) {
	e.server, err = process.Start(ctx, process.Program{
		Name: "elasticmq", Path: e.java, Log: e.dir + ".log",
		Args: []string{
			"-Xmx256m", "-Dconfig.file=" + filepath.Join(e.dir, "elasticmq.conf"), "-cp", e.classPath,
			"org.elasticmq.server.Main",
		},
	})
	if err != nil {
		return err
	}
	return until(ctx, "elasticmq", e.server.Done(), func(ctx context.Context) error {
		_, err := e.client.ListQueues(ctx, &sqs.ListQueuesInput{})
		return err
	})
}

// Restart is described at [Broker]. Nothing is received meanwhile: a request that comes when the server has closed its
// files makes it wait for half a minute before it ends.
func (e *elasticMQ) Restart(ctx context.Context, _ bool, wait time.Duration) error {
	e.reading.Lock()
	defer e.reading.Unlock()
	if err := e.server.End(syscall.SIGTERM, 30*time.Second); err != nil {
		return err
	}
	pause(ctx, wait)
	return e.start(ctx)
}

// Stop is described at [Broker].
func (e *elasticMQ) Stop() {
	stop(e.server)
	e.transport.CloseIdleConnections()
}

// Durable is described at [Broker]. ElasticMQ answers before it has written.
func (e *elasticMQ) Durable() bool { return false }

// Links is described at [Broker].
func (e *elasticMQ) Links(n int) (listen, upstream string) {
	return address(e.links[n]), address(e.port)
}

// Config is described at [Broker]. More requests at once than it can answer in their time make ElasticMQ slower still:
// it works on those that were given up, too.
func (e *elasticMQ) Config(address string) string {
	return fmt.Sprintf("{type: sqs, sqs: {endpoint: %q, request_timeout: 2500ms, concurrency: 4, max_message_bytes: 262144, "+
		"credentials: {access_key_id: chaos, secret_access_key: chaos}}}", "http://"+address)
}

// Rate is described at [Broker]. ElasticMQ stores messages one by one.
func (e *elasticMQ) Rate() int { return usualRate / 4 }

// Read is described at [Broker]. The server gives the messages of a group to one receiver at a time, but, unlike SQS, for
// some time after a restart not in their order: newer ones come while older ones are still being restored. The order of
// the queue, which is what a dispatcher has made, is that of the server's own stamps.
func (e *elasticMQ) Read(ctx context.Context, arrived func(Message)) {
	const receivers = 2
	var receiving sync.WaitGroup
	for range receivers {
		receiving.Go(func() {
			for ctx.Err() == nil {
				if e.receive(ctx, arrived) != nil {
					pause(ctx, 100*time.Millisecond) // the server is away
				}
			}
		})
	}
	receiving.Wait()
}

func (e *elasticMQ) receive(ctx context.Context, arrived func(Message)) error {
	e.reading.RLock()
	defer e.reading.RUnlock()
	queue := aws.String("http://" + address(e.port) + "/000000000000/" + Topic + ".fifo")
	out, err := e.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 1,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameSequenceNumber, types.MessageSystemAttributeNameSentTimestamp,
			types.MessageSystemAttributeNameApproximateReceiveCount,
		},
	})
	if err != nil || len(out.Messages) == 0 {
		return err
	}
	var entries []types.DeleteMessageBatchRequestEntry
	for i, m := range out.Messages {
		arrived(Message{
			Payload: []byte(aws.ToString(m.Body)), Rank: rankOf(m), Place: fmt.Sprint(m.Attributes),
		})
		entries = append(entries, types.DeleteMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle,
		})
	}
	_, err = e.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: queue, Entries: entries})
	return err
}

// rankOf is the place of a message in the queue. Sequence numbers begin anew with each start of the server.
func rankOf(m types.Message) ledger.Rank {
	number := func(name types.MessageSystemAttributeName) int64 {
		n, _ := strconv.ParseInt(m.Attributes[string(name)], 10, 64) // always there: it was asked for
		return n
	}
	return ledger.Rank{
		Time:   number(types.MessageSystemAttributeNameSentTimestamp),
		Number: number(types.MessageSystemAttributeNameSequenceNumber),
	}
}
