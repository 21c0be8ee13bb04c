package sqsfake_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
)

// client speaks the protocol without an SDK.
type client struct {
	*testing.T
	*sqsfake.Server
	clock atomic.Int64 // nanoseconds since an epoch
}

func start(t *testing.T) *client {
	t.Helper()
	c := &client{T: t}
	server, err := sqsfake.Start(sqsfake.Config{Now: func() time.Time { return time.Unix(1000, c.clock.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	c.Server = server
	return c
}

func (c *client) pass(d time.Duration) { c.clock.Add(int64(d)) }

type object = map[string]any

// call makes a request; code is that of the error.
func (c *client) call(action string, in object) (out object, code string) {
	c.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		c.Fatal(err)
	}
	request, err := http.NewRequestWithContext(c.Context(), http.MethodPost, c.URL(), bytes.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	request.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&out); err != nil {
		c.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		code, _ = out["__type"].(string)
		return out, strings.TrimPrefix(code, "com.amazonaws.sqs#")
	}
	return out, ""
}

func (c *client) create(name string, attributes map[string]string) string {
	c.Helper()
	url, err := c.CreateQueue(name, attributes)
	if err != nil {
		c.Fatal(err)
	}
	return url
}

func (c *client) send(url, body, group, dedup string) {
	c.Helper()
	in := object{"QueueUrl": url, "MessageBody": body}
	if group != "" {
		in["MessageGroupId"], in["MessageDeduplicationId"] = group, dedup
	}
	if out, code := c.call("SendMessage", in); code != "" {
		c.Fatalf("send %q: %v", body, out)
	}
}

// receive returns the bodies and receipt handles of up to n messages.
func (c *client) receive(url string, n int) (bodies string, handles []string) {
	c.Helper()
	out, code := c.call("ReceiveMessage", object{"QueueUrl": url, "MaxNumberOfMessages": n})
	if code != "" {
		c.Fatalf("receive: %v", out)
	}
	var words []string
	messages, _ := out["Messages"].([]any)
	for _, m := range messages {
		fields, _ := m.(object)
		words = append(words, fmt.Sprint(fields["Body"]))
		handles = append(handles, fmt.Sprint(fields["ReceiptHandle"]))
	}
	return strings.Join(words, " "), handles
}

func (c *client) wantReceive(url string, n int, want string) []string {
	c.Helper()
	got, handles := c.receive(url, n)
	if got != want {
		c.Errorf("received %q, want %q", got, want)
	}
	return handles
}

func (c *client) remove(url, handle string) {
	c.Helper()
	if out, code := c.call("DeleteMessage", object{"QueueUrl": url, "ReceiptHandle": handle}); code != "" {
		c.Fatalf("delete: %v", out)
	}
}

// A group is locked while one of its messages is in flight; others are not.
func TestGroupLocks(t *testing.T) {
	t.Parallel()
	c := start(t)
	url := c.create("q.fifo", nil)
	for _, body := range []string{"a1", "a2", "b1", "a3", "b2"} {
		c.send(url, body, body[:1], body)
	}
	first := c.wantReceive(url, 2, "a1 a2")
	second := c.wantReceive(url, 10, "b1 b2")
	c.wantReceive(url, 10, "")
	c.remove(url, first[0])
	c.wantReceive(url, 10, "")
	c.remove(url, first[1])
	c.wantReceive(url, 10, "a3")
	if _, code := c.call("ChangeMessageVisibility",
		object{"QueueUrl": url, "ReceiptHandle": second[1], "VisibilityTimeout": 0}); code != "" {
		t.Error(code)
	}
	c.wantReceive(url, 10, "") // b1 is still in flight
	c.pass(31 * time.Second)
	c.wantReceive(url, 10, "b1 a3 b2")
	if _, code := c.call("DeleteMessage", object{"QueueUrl": url, "ReceiptHandle": second[0]}); code == "" {
		t.Error("the handle of a message that was received again since deletes it")
	}
}

// A de-duplication id is remembered for five minutes, for the queue or for the group.
func TestDeduplication(t *testing.T) {
	t.Parallel()
	c := start(t)
	wide := c.create("wide.fifo", nil)
	narrow := c.create("narrow.fifo", map[string]string{"DeduplicationScope": "messageGroup"})
	content := c.create("content.fifo", map[string]string{"ContentBasedDeduplication": "true"})
	for _, url := range []string{wide, narrow} {
		c.send(url, "1", "a", "id")
		c.send(url, "2", "a", "id")
		c.send(url, "3", "b", "id")
		c.pass(sqsfake.DedupWindow - 1)
		c.send(url, "4", "a", "id")
		c.pass(1)
		c.send(url, "5", "a", "id")
	}
	for range 2 {
		in := object{"QueueUrl": content, "MessageBody": "x", "MessageGroupId": "a"}
		if _, code := c.call("SendMessage", in); code != "" {
			t.Error(code)
		}
	}
	for name, want := range map[string]string{"wide.fifo": "1 5", "narrow.fifo": "1 3 5", "content.fifo": "x"} {
		var got []string
		for _, m := range c.Messages(name) {
			got = append(got, m.Body)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}

// What one entry breaks is refused for it alone.
// wantRefused sends two entries, of which the first must be refused and the second stored.
// What breaks the request is refused as a whole.
// A wait for messages ends when one comes.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	c := start(t)
	url := c.create("q", nil)
	polling := make(chan struct{})
	c.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		if r.Action == "ReceiveMessage" {
			close(polling)
		}
		return sqsfake.Fault{}
	})
	done := make(chan object)
	go func() {
		out, _ := c.call("ReceiveMessage", object{"QueueUrl": url, "WaitTimeSeconds": 20})
		done <- out
	}()
	<-polling
	c.send(url, "b", "", "")
	out := <-done
	if messages, _ := out["Messages"].([]any); len(messages) != 1 {
		t.Errorf("received %v", out)
	}
}
