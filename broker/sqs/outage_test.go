package sqs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

// publishErrorOf finds the error that the dispatcher looks at.
func publishErrorOf(tb testing.TB, r core.Result) *core.PublishError {
	tb.Helper()
	var e *core.PublishError
	if !errors.As(r.Err, &e) {
		tb.Fatalf("%v without a *core.PublishError: %v", r.Outcome, r.Err)
	}
	return e
}

// Credentials that have expired, or cannot be renewed for a while, are an outage that ends by itself.
func TestField_121_CredentialsThatExpire(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	var broken bool
	config := configOf(fake.URL())
	config.Credentials = sqs.Credentials{Provider: aws.CredentialsProviderFunc(
		func(context.Context) (aws.Credentials, error) {
			if broken {
				return aws.Credentials{}, errors.New("the token service is throttled")
			}
			return aws.Credentials{ // expired at once, so that each request asks anew
				AccessKeyID: "a", SecretAccessKey: "b", CanExpire: true, Expires: time.Unix(1, 0),
			}, nil
		})}
	broker := open(t, config)
	r := oneKey("k", 1)[0]
	fake.Refuse(2, sqsfake.ExpiredCredentials())
	for range 2 {
		result := publish(t, broker, r)[0]
		wantError(t, result, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected)
	}
	broken = true
	result := publish(t, broker, r)[0]
	wantError(t, result, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected)
	if !strings.Contains(result.Err.Error(), "the token service is throttled") {
		t.Errorf("the error hides the reason: %v", result.Err)
	}
	broken = false
	deliver(t, broker, r)
}

// A queue was deleted. For a while it had answered that it stores.
func TestField_132_DeletedQueue(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	createQueue(t, fake, "other.fifo", nil)
	log := &logBuffer{}
	config := configOf(fake.URL())
	config.Logger = slog.New(slog.NewTextHandler(log, nil))
	broker := open(t, config)
	records := oneKey("k", 4)
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		if r.Queue == "orders.fifo" && r.Action == "SendMessageBatch" && r.N <= 3 {
			return sqsfake.Fault{Vanish: true}
		}
		return sqsfake.Fault{}
	})
	deliver(t, broker, records[:3]...)
	fake.DeleteQueue("orders.fifo")

	looked := fake.Count("GetQueueUrl")
	for range 3 {
		result := publish(t, broker, records[3])[0]
		wantError(t, result, core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected)
		if !strings.Contains(result.Err.Error(), "orders.fifo") {
			t.Errorf("the error does not name the queue: %v", result.Err)
		}
		deliver(t, broker, brokertest.NewRecord("other", "k", 1)) // other queues flow
	}
	if n := fake.Count("GetQueueUrl") - looked; n < 2 {
		t.Errorf("the URL was looked up %d times while the queue was gone, want each time", n)
	}
	for _, id := range idsOf(records[:3]...) {
		if strings.Count(log.String(), id) != 1 {
			t.Errorf("event %s, which may be lost, is not named once in the log:\n%s", id, log)
		}
	}
	createQueue(t, fake, "orders.fifo", nil)
	deliver(t, broker, records[3])
}

// A request that was under way when another one learned that the queue is gone proves nothing by its success.
func TestField_132_SuccessOfADeletedQueueIsDoubted(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	known := make(chan struct{})
	config := configOf(fake.URL())
	config.Logger = slog.New(slog.NewTextHandler(writerFunc(func([]byte) { close(known) }), nil))
	broker := open(t, config)
	deliver(t, broker, oneKey("first", 1)...)
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		switch {
		case r.Action != "SendMessageBatch":
			return sqsfake.Fault{}
		case len(r.Entries) == 10:
			return sqsfake.Fault{Until: known, Vanish: true}
		default:
			return sqsfake.Fault{Error: sqsfake.QueueDoesNotExist()}
		}
	})
	for i, r := range publish(t, broker, spread(11)...) {
		want := core.OutcomeUnknown
		if i == 10 {
			want = core.OutcomeRejected
		}
		wantError(t, r, core.ClassMisconfigured, core.ScopeDestination, want)
	}
}

// No secret in errors, logs and printed configurations.
func TestField_166_SecretsStaySecret(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-Key"
	log := &logBuffer{}
	config, err := sqs.ParseURL("sqs://app:" + secret + "@127.0.0.1:1?region=eu-west-1")
	if err != nil {
		t.Fatal(err)
	}
	config.Credentials.SessionToken = secret
	config.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	broker := open(t, config)
	result := publish(t, broker, oneKey("k", 1)...)[0]
	wantError(t, result, core.ClassUnavailable, core.ScopeBroker, core.OutcomeRejected)
	config.Logger.Info("configuration", "credentials", config.Credentials)
	encoded, err := json.Marshal(config.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	_, errURL := sqs.ParseURL("sqs://app:" + secret + "@127.0.0.1:1?regoin=eu-west-1&endpoint=%zz")
	config.Credentials.AccessKeyID = ""
	for what, text := range map[string]string{
		"the publish error":     result.Err.Error(),
		"the check error":       fmt.Sprint(broker.Check(t.Context())),
		"the log":               log.String(),
		"the printed config":    fmt.Sprintf("%v %+v %#v", config.Credentials, config.Credentials, config.Credentials),
		"the encoded config":    string(encoded),
		"the URL's error":       fmt.Sprint(errURL),
		"the validation errors": fmt.Sprint(config.Validate()),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s tells the secret: %s", what, text)
		}
	}
}

// What a reply does not name, and what came damaged, is unknown.
// A server that refuses a request as a whole for one message must not make us park its neighbours.
// The same within a group: what comes after the message at fault is not sent.
// A limit that was raised is noticed by the first message that needs it.
// A limit that was lowered after we had read it splits requests too.
// With GroupRuns a busy group goes out ten at a time, in order.
// A call that runs out of time ends without an error of the queue, and without anything half done.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
