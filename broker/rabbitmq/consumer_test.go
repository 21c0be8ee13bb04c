package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
)

// journal is what consumers have handled.
type journal struct {
	mu     sync.Mutex
	handed map[string][]string // event ids by aggregate, first occurrences
	seen   map[string]bool
	total  int
	done   chan struct{} // closed once this many events were seen
	want   int
}

func newJournal(want int) *journal {
	return &journal{handed: map[string][]string{}, seen: map[string]bool{}, done: make(chan struct{}), want: want}
}

func (j *journal) handle(_ context.Context, d rabbitmq.Delivery) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total++
	if j.seen[d.EventID] {
		return nil
	}
	j.seen[d.EventID] = true
	j.handed[d.AggregateID] = append(j.handed[d.AggregateID], d.EventID)
	if len(j.seen) == j.want {
		close(j.done)
	}
	return nil
}

// expect says how many events there are, once that is known.
func (j *journal) expect(want int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.want = want
	if len(j.seen) == want {
		close(j.done)
	}
}

// wait waits until all events were seen.
func (j *journal) wait(t *testing.T) {
	t.Helper()
	select {
	case <-j.done:
	case <-time.After(20 * time.Second):
		j.mu.Lock()
		defer j.mu.Unlock()
		t.Fatalf("%d of %d events were handled", len(j.seen), j.want)
	}
}

// wantOrder checks that every aggregate's events were handled in order.
func (j *journal) wantOrder(t *testing.T, records []*core.Record) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	want := map[string][]string{}
	for _, r := range records {
		want[r.AggregateID] = append(want[r.AggregateID], r.EventID)
	}
	if !maps.EqualFunc(j.handed, want, slices.Equal[[]string]) {
		for key := range want {
			if !slices.Equal(j.handed[key], want[key]) {
				t.Errorf("%s: handled %v, want %v", key, j.handed[key], want[key])
			}
		}
	}
}

// consume runs a consumer until the test ends, or stop is called, which returns what Consume returned.
func consume(
	t *testing.T, config rabbitmq.ConsumerConfig, handle rabbitmq.Handler,
) (stop func() error, ended <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = rabbitmq.Consume(ctx, config, handle)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop, done
}

func consumerConfig(config rabbitmq.Config, topic string) rabbitmq.ConsumerConfig {
	return rabbitmq.ConsumerConfig{
		Server: config, Topic: topic, Group: group, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
	}
}

// rounds returns n events of each of some keys, and publishes them in order.
func rounds(t *testing.T, b core.Broker, topic string, keys, n int) []*core.Record {
	t.Helper()
	var all []*core.Record
	for range n {
		batch := spread(topic, keys)
		deliver(t, b, batch...)
		all = append(all, batch...)
	}
	return all
}

// A consumer gets the event as it was enqueued.
func TestConsumeMessage(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	config := s.config(t)
	r := brokertest.NewRecord(topic, "a", 1)
	r.Payload = []byte{0, 1, 0xFF}
	deliver(t, open(t, config), r)
	got := make(chan rabbitmq.Delivery, 1)
	stop, _ := consume(t, consumerConfig(config, topic), func(_ context.Context, d rabbitmq.Delivery) error {
		got <- d
		return nil
	})
	d := <-got
	want := rabbitmq.Delivery{Message: r.Message, Queue: rabbitmq.QueueName(topic, group, 1, 0), Attempt: 1}
	if fmt.Sprint(d) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", d, want)
	}
	if err := stop(); err != nil {
		t.Errorf("Consume: %v", err)
	}
}

// A handler that fails gets the same message again, before any other.
func TestConsumeRetriesInPlace(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	config := s.config(t)
	records := rounds(t, open(t, config), topic, 3, 4)
	j, fails := newJournal(len(records)), map[string]int{}
	consume(t, consumerConfig(config, topic), func(ctx context.Context, d rabbitmq.Delivery) error {
		if fails[d.EventID]++; fails[d.EventID] < 3 {
			return errors.New("not yet")
		}
		if d.Attempt != 3 {
			t.Errorf("attempt %d, want 3", d.Attempt)
		}
		return j.handle(ctx, d)
	})
	j.wait(t)
	j.wantOrder(t, records)
}

// With Attempts a message becomes a dead letter, and those behind it are handled.
func TestConsumeDeadLetter(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	config := s.config(t)
	records := rounds(t, open(t, config), topic, 1, 3)
	c := consumerConfig(config, topic)
	c.Attempts = 2
	j := newJournal(2)
	consume(t, c, func(ctx context.Context, d rabbitmq.Delivery) error {
		if d.EventID == records[1].EventID {
			return errors.New("never")
		}
		return j.handle(ctx, d)
	})
	j.wait(t)
	dead := s.receive(t, rabbitmq.DeadLetterName(topic, group))
	if dead.MessageId != records[1].EventID || dead.RoutingKey != "1.0/1/16" {
		t.Errorf("the dead letter is %q from %q", dead.MessageId, dead.RoutingKey)
	}
}

// receive waits for a message of a queue.
func (s *server) receive(t *testing.T, queue string) amqp.Delivery {
	t.Helper()
	ch, err := s.conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close() //nolint:errcheck // the test is over
	deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-deliveries:
		return d
	case <-time.After(10 * time.Second):
		t.Fatalf("nothing comes from queue %q", queue)
		return amqp.Delivery{}
	}
}

// The active consumer dies in the middle of a message, again and again: the next one takes over, and every aggregate's
// events are handled in order.
func TestConsumeFailover(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	config := s.config(t)
	records := rounds(t, open(t, config), topic, 5, 40)
	j := newJournal(len(records))
	p := startProxy(t, s.host(t))
	mortal := config
	mortal.Addresses = []string{p.address}
	handled := 0 // by mortals, of which one is active at a time
	var mu sync.Mutex
	for range 2 {
		consume(t, consumerConfig(mortal, topic), func(ctx context.Context, d rabbitmq.Delivery) error {
			mu.Lock()
			handled++
			die := handled%17 == 0
			mu.Unlock()
			if die {
				p.cut()
				<-ctx.Done() // the context of a handler ends with its connection
			}
			return j.handle(ctx, d)
		})
	}
	j.wait(t)
	j.wantOrder(t, records)
	if j.total == len(records) {
		t.Error("no message was handled twice, so that no consumer died in the middle of one")
	}
}

// One that hangs is replaced by one in another process.
func TestConsumeStandby(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	config := s.config(t)
	b := open(t, config)
	first := rounds(t, b, topic, 2, 5)
	j := newJournal(20)
	half := newJournal(10)
	active, _ := consume(t, consumerConfig(config, topic), func(ctx context.Context, d rabbitmq.Delivery) error {
		return errors.Join(half.handle(ctx, d), j.handle(ctx, d))
	})
	half.wait(t)
	consume(t, consumerConfig(config, topic), j.handle)
	if err := active(); err != nil {
		t.Errorf("Consume: %v", err)
	}
	second := rounds(t, b, topic, 2, 5)
	j.wait(t)
	j.wantOrder(t, append(first, second...))
}

// A missing queue is a matter for a person.
func TestConsumeMissingQueue(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	err := rabbitmq.Consume(t.Context(), consumerConfig(s.config(t), s.name(t)), nil)
	var e *core.PublishError
	if !errors.As(err, &e) || e.Class != core.ClassMisconfigured || e.Code != "NOT_FOUND" {
		t.Errorf("Consume: %v", err)
	}
}

func TestConsumerConfigValidate(t *testing.T) {
	t.Parallel()
	config := rabbitmq.ConsumerConfig{Group: "other", Topic: "amq.x", Attempts: -1, PreviousQueues: 2, Backoff: -1}
	err := config.Validate()
	for _, path := range []string{"Addresses", "Topic", "Group", "Attempts", "PreviousQueues", "Backoff"} {
		if !hasFault(err, path) {
			t.Errorf("no fault of %s in: %v", path, err)
		}
	}
}
