package consume_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/consume"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
)

func start(t *testing.T) (*sqsfake.Server, *sdk.Client, string) {
	t.Helper()
	fake, err := sqsfake.Start(sqsfake.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	url, err := fake.CreateQueue("orders.fifo", nil)
	if err != nil {
		t.Fatal(err)
	}
	return fake, sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(fake.URL()), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}), url
}

// send sends n messages of a group, with bodies "group/0" and on.
func send(t *testing.T, client *sdk.Client, url, group string, n int) {
	t.Helper()
	for i := range n {
		body := fmt.Sprintf("%s/%d", group, i)
		if _, err := client.SendMessage(t.Context(), &sdk.SendMessageInput{
			QueueUrl: &url, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: &body,
		}); err != nil {
			t.Fatal(err)
		}
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// Handlers fail, consumers compete: each group is handled in order all the same.
func TestOrderUnderFailures(t *testing.T) {
	t.Parallel()
	_, client, url := start(t)
	const groups, perGroup = 4, 25
	for g := range groups {
		send(t, client, url, fmt.Sprint("g", g), perGroup)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var (
		mu    sync.Mutex
		tries = map[string]int{}
		done  = map[string][]string{}
		count int
	)
	handle := func(_ context.Context, m sqs.Message) error {
		mu.Lock()
		defer mu.Unlock()
		body := string(m.Payload)
		if tries[body]++; len(body)%2 == 0 && tries[body] == 1 {
			return errors.New("not now")
		}
		done[m.GroupID] = append(done[m.GroupID], body)
		if count++; count == groups*perGroup {
			cancel()
		}
		return nil
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := consume.Run(ctx, client, url, handle, consume.Config{
				Receivers: 2, RetryDelay: -1, Logger: quiet,
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for g := range groups {
		name := fmt.Sprint("g", g)
		var want []string
		for i := range perGroup {
			want = append(want, fmt.Sprintf("%s/%d", name, i))
		}
		if !slices.Equal(done[name], want) {
			t.Errorf("group %s was handled as %q", name, done[name])
		}
	}
}

// What was handled is deleted although the consumer is stopping; what was not goes back at once.
func TestStop(t *testing.T) {
	t.Parallel()
	_, client, url := start(t)
	send(t, client, url, "g", 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := consume.Run(ctx, client, url, func(context.Context, sqs.Message) error {
		cancel()
		return nil
	}, consume.Config{}); err != nil {
		t.Fatal(err)
	}
	out, err := client.ReceiveMessage(t.Context(), &sdk.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Messages) != 2 || *out.Messages[0].Body != "g/1" {
		t.Errorf("%d messages are receivable after the stop, want g/1 and g/2", len(out.Messages))
	}
}

func TestMissingQueue(t *testing.T) {
	t.Parallel()
	fake, client, url := start(t)
	fake.DeleteQueue("orders.fifo")
	err := consume.Run(t.Context(), client, url, nil, consume.Config{})
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a queue that does not exist: %v", err)
	}
}

// An outage ends by itself.
func TestOutage(t *testing.T) {
	t.Parallel()
	fake, client, url := start(t)
	send(t, client, url, "g", 1)
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		if r.Action == "ReceiveMessage" && r.N < 4 {
			return sqsfake.Fault{Error: sqsfake.Unavailable()}
		}
		return sqsfake.Fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	handled := 0
	if err := consume.Run(ctx, client, url, func(context.Context, sqs.Message) error {
		handled++
		cancel()
		return nil
	}, consume.Config{RetryDelay: -1, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	if handled != 1 {
		t.Errorf("%d messages were handled, want 1", handled)
	}
}
