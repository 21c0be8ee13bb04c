package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/go-outbox/outbox/notify"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// told is what a receiver of the webhook reads of a message.
type told struct {
	Type string
	Data struct {
		Outbox, Topic, Reason string
		AggregateID           string `json:"aggregate_id"`
		LeftOut               int    `json:"left_out"`
	}
}

// listen starts a receiver that believes signed messages only.
func listen(t *testing.T) (url string, messages <-chan told) {
	t.Helper()
	got := make(chan told, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = notify.Verify(r.Header, body, hookSecret, 5*time.Minute)
		}
		var message told
		if err == nil {
			err = json.Unmarshal(body, &message)
		}
		if err != nil {
			t.Errorf("the message %s: %v", body, err)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		got <- message
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

func next(t *testing.T, messages <-chan told) told {
	t.Helper()
	select {
	case m := <-messages:
		return m
	case <-time.After(patience):
		t.Fatalf("nobody was told within %v", patience)
		return told{}
	}
}

// refusing is a configuration with a broker that accepts no event, so that all are parked, and with a webhook.
func refusing(t *testing.T, shop shop, hook string) (file string) {
	t.Helper()
	return writeConfig(t, fmt.Sprintf(`
store: {type: sqlite, sqlite: {path: %q}}
broker: {type: memory, memory: {max_message_bytes: 10}}
dispatcher: {name: shop}
notify: {url: "%s/TOKEN", secret: %s, min_interval: 1h, timeout: 5s}
`, filepath.ToSlash(shop.path), hook, hookSecret))
}

func TestRunTellsOfParkedEvents(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	hook, messages := listen(t)
	file := refusing(t, shop, hook)
	outbox(t, "migrate", "up", "-c", file)
	p := start(t, "run", "-c", file)
	shop.insert(t, 1, 1)
	first := next(t, messages)
	if first.Type != "outbox.parked" || first.Data.Outbox != "shop" || first.Data.Topic != "order" ||
		first.Data.AggregateID != "ord_0" || !strings.Contains(first.Data.Reason, "limit") || first.Data.LeftOut != 0 {
		t.Errorf("got %+v; want what was parked, and why", first)
	}

	p.waitFor(t, "parked")

	// Within the interval nobody is told, but at the end of the run.
	shop.insert(t, 3, 3)
	for range 3 {
		p.waitFor(t, "parked")
	}
	if code := p.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM code %d, want 0", code)
	}
	if last := next(t, messages); last.Type != "outbox.parked" || last.Data.LeftOut != 2 || len(messages) > 0 {
		t.Errorf("got %+v and %d more; want one message for the other three", last, len(messages))
	}
}

// What was in flight when the signal came may be parked afterwards; somebody is told of that too.
func TestRunTellsOfWhatIsParkedAfterASignal(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	hook, messages := listen(t)
	cluster, kafka := startKafka(t)
	caught, answer := make(chan struct{}), make(chan struct{})
	catch, release := sync.OnceFunc(func() { close(caught) }), sync.OnceFunc(func() { close(answer) })
	t.Cleanup(release)
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		catch()
		<-answer
		return refuse(request), nil, true
	})
	file := writeConfig(t, fmt.Sprintf("{store: %q, broker: %q, notify: {url: %q, secret: %s}}", shop.url(), kafka, hook, hookSecret))
	outbox(t, "migrate", "up", "-c", file)
	shop.insert(t, 1, 1)
	p := start(t, "run", "-c", file)
	<-caught
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.waitFor(t, "a second signal aborts")
	release()
	if got := next(t, messages); got.Type != "outbox.parked" || got.Data.AggregateID != "ord_0" {
		t.Errorf("got %+v; want that the event is parked", got)
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("code %d, want 0", code)
	}
}

// refuse answers a produce request of one partition: its record is not valid.
func refuse(request kmsg.Request) kmsg.Response {
	produce, ok := request.(*kmsg.ProduceRequest)
	if !ok {
		return nil
	}
	response := kmsg.NewPtrProduceResponse()
	response.SetVersion(produce.GetVersion())
	for _, of := range produce.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = of.Topic, of.TopicID
		for _, p := range of.Partitions {
			refused := kmsg.NewProduceResponseTopicPartition()
			refused.Partition, refused.ErrorCode = p.Partition, kerr.InvalidRecord.Code
			topic.Partitions = append(topic.Partitions, refused)
		}
		response.Topics = append(response.Topics, topic)
	}
	return response
}

func TestRunOnceTellsOfParkedEvents(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	hook, messages := listen(t)
	file := refusing(t, shop, hook)
	outbox(t, "migrate", "up", "-c", file)
	shop.insert(t, 5, 2)
	if got := outbox(t, "run", "--once", "-c", file); got.code != 0 || !strings.Contains(got.errOut, `"parked":5`) {
		t.Errorf("got %+v; want code 0 and 5 parked", got)
	}
	events := 0
	for len(messages) > 0 { // the run waits for the answers
		events += 1 + next(t, messages).Data.LeftOut
	}
	if events != 5 {
		t.Errorf("told of %d events, want 5", events)
	}
}

// A receiver that is restarted at that moment is told nevertheless: the run waits for it.
func TestRunOnceWaitsForAReceiverThatComesBack(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	var asked atomic.Int32
	got := make(chan told, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var message told
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			t.Error(err)
		}
		got <- message
	}))
	t.Cleanup(server.Close)
	file := writeConfig(t, fmt.Sprintf(`
store: %q
broker: {type: memory, memory: {max_message_bytes: 10}}
notify: {url: %q, timeout: 50s}
`, shop.url(), server.URL))
	outbox(t, "migrate", "up", "-c", file)
	shop.insert(t, 5, 2)
	run := outbox(t, "run", "--once", "-c", file)
	if run.code != 0 || strings.Contains(run.errOut, "nobody was told") || strings.Count(run.errOut, "messages are not signed") != 1 {
		t.Errorf("got %+v; want code 0, that it was told, and once that it does not sign", run)
	}
	events := 0
	for len(got) > 0 {
		events += 1 + next(t, got).Data.LeftOut
	}
	if events != 5 {
		t.Errorf("told of %d events, want 5", events)
	}
}

// A webhook that does not work is seen in the log, without the token in its URL. It keeps nothing up.
func TestRunOutlivesItsWebhook(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	address, _ := freeAddress(t)
	file := refusing(t, shop, "http://"+address)
	outbox(t, "migrate", "up", "-c", file)
	shop.insert(t, 5, 2)
	got := outbox(t, "run", "--once", "-c", file)
	if got.code != 0 || !strings.Contains(got.errOut, `"parked":5`) || !strings.Contains(got.errOut, "nobody was told") {
		t.Errorf("got %+v; want code 0, 5 parked, and that nobody was told", got)
	}
	if strings.Contains(got.errOut, "TOKEN") || strings.Contains(got.errOut, hookSecret) {
		t.Errorf("the log shows a secret:\n%s", got.errOut)
	}
	printed := outbox(t, "config", "print", "-c", file)
	if printed.code != 0 || strings.Contains(printed.out, "TOKEN") || strings.Contains(printed.out, hookSecret) ||
		!strings.Contains(printed.out, "http://"+address+"/***") {
		t.Errorf("config print: got %+v", printed)
	}
}

// A run that leaves dispatching to others touches nothing until a signal ends it.
func TestRunEnqueueOnly(t *testing.T) {
	t.Parallel()
	shop := newShop(t)
	_, kafka := startKafka(t)
	outbox(t, "migrate", "up", "--store", shop.url())
	shop.insert(t, 3, 1)
	file := writeConfig(t, fmt.Sprintf("{store: %q, broker: %q, dispatcher: {name: shop, enqueue_only: true}}", shop.url(), kafka))
	p := start(t, "run", "-c", file)
	if line := p.waitFor(t, "dispatching is left to others"); !strings.Contains(line, `"outbox":"shop"`) {
		t.Errorf("got %s; want which outbox", line)
	}
	if got := outbox(t, "run", "--once", "-c", file); got.code != 0 || !strings.Contains(got.errOut, `"published":0`) {
		t.Errorf("run --once: got %+v; want code 0 and nothing published", got)
	}
	if code := p.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM code %d, want 0", code)
	}
	if n := shop.pending(t); n != 3 {
		t.Errorf("%d rows are pending, want all 3", n)
	}
	if got := outbox(t, "run", "--once", "--store", shop.url(), "--broker", kafka); got.code != 0 || shop.pending(t) != 0 {
		t.Errorf("another run: got %+v; want that it publishes them", got)
	}
}
