package worker_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/target"
	"github.com/go-outbox/outbox/bench/internal/worker"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
)

// TestMain makes this program a worker when a test starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Argument {
		if worker.Main(context.Background(), os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A worker in a process of its own sends everything, and what a target reads back is complete and in order.
func TestPublish(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fake, err := sqsfake.Start(sqsfake.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	to, err := target.Open(ctx, "sqs://"+strings.TrimPrefix(fake.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	topic, err := to.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 95
	s, err := worker.Do(ctx, worker.Job{Kind: worker.Publish, Broker: to.URL(), Topic: topic, Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	if s.Took <= 0 || s.CPU <= 0 || s.RSS <= 0 || s.Mallocs == 0 {
		t.Errorf("nothing was measured: %+v", s)
	}
	check := load.NewCheck(rows)
	if err := to.Read(ctx, topic, func(body []byte) (bool, error) {
		err := check.Add(body)
		return check.Missing() == 0, err
	}); err != nil {
		t.Fatal(err)
	}
	if check.Repeats() > 0 {
		t.Errorf("%d repeats", check.Repeats())
	}
}

func TestReadTellsWhatEachTells(t *testing.T) {
	t.Parallel()
	fake, err := sqsfake.Start(sqsfake.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	to, err := target.Open(t.Context(), "sqs://"+strings.TrimPrefix(fake.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	topic, err := to.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Publish(t.Context(), topic, 10); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	if err := to.Read(t.Context(), topic, func([]byte) (bool, error) { return false, bad }); !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
}

func TestAWorkerTellsWhyItFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		job        worker.Job
	}{
		{"an unknown kind", `unknown kind "nothing"`, worker.Job{Kind: "nothing"}},
		{"no broker", `no broker is known`, worker.Job{Kind: worker.Publish, Broker: "http://localhost"}},
		{"a topic that is not there", "NonExistentQueue", worker.Job{
			Kind: worker.Publish, Broker: "", Topic: "nosuch", Rows: 1,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.job.Broker == "" && c.job.Kind == worker.Publish {
				fake, err := sqsfake.Start(sqsfake.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer fake.Close()
				c.job.Broker = "sqs://" + strings.TrimPrefix(fake.URL(), "http://")
			}
			_, err := worker.Do(t.Context(), c.job)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestPeakMemory(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int64{
		"Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 99 kB\n": 1234 << 10, "Name:\tx\n": 0, "": 0, "VmHWM:": 0,
	} {
		if got := worker.PeakMemory([]byte(status)); got != want {
			t.Errorf("%q: %d, want %d", status, got, want)
		}
	}
}
