package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// A test starts dispatchers as processes of their own, so that they can be stopped and killed for real. Their broker is
// a log in the test's process.

// childConfig is what a child process gets in its environment.
type childConfig struct {
	DSN, Schema, Broker string
	After               postgres.AfterPublish
	TTL                 time.Duration
}

const childVariable = "OUTBOX_TEST_CHILD"

// runChild is the child's main: a dispatcher until the process ends.
func runChild(config string) {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.DiscardHandler)
	store, err := postgres.Open(ctx, postgres.Config{DSN: c.DSN, Schema: c.Schema, AfterPublish: c.After, Logger: log})
	if err != nil {
		panic(err)
	}
	d, err := core.NewDispatcher(store, &remoteLog{address: c.Broker}, core.Config{LeaseTTL: c.TTL, Logger: log})
	if err != nil {
		panic(err)
	}
	if err := errors.Join(d.Run(ctx), store.Close()); err != nil {
		panic(err)
	}
}

// startChild starts a dispatcher process.
func startChild(t testing.TB, c childConfig) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// remoteLog is the broker as a child sees it.
type remoteLog struct{ address string }

func (*remoteLog) Capabilities() core.Capabilities {
	return core.Capabilities{KeyGuarantee: core.PrefixPerKey, MaxInFlight: 3}
}

func (*remoteLog) Prepare(r *core.Record) (core.Prepared, error) {
	return core.Prepared{Record: r, Destination: r.Topic, Bytes: r.Size()}, nil
}

func (b *remoteLog) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	results := make([]core.Result, len(batch))
	err := b.send(ctx, batch)
	for i := range results {
		results[i].Outcome = core.OutcomeDelivered
		if err != nil {
			results[i] = core.Result{Outcome: core.OutcomeUnknown, Err: err}
		}
	}
	return results
}

func (b *remoteLog) send(ctx context.Context, batch []core.Prepared) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	payloads := make([]json.RawMessage, len(batch))
	for i := range batch {
		payloads[i] = batch[i].Record.Payload
	}
	if err := json.NewEncoder(conn).Encode(payloads); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadByte() // the answer
	return err
}

func (*remoteLog) Check(context.Context) error { return nil }
func (*remoteLog) Close(context.Context) error { return nil }

// brokerLog is the broker in the test's process.
type brokerLog struct {
	listener net.Listener
	mu       sync.Mutex
	log      []logged
	done     sync.WaitGroup
}

// logged is a message: the n-th of its key.
type logged struct{ Key, N int }

func newBrokerLog(t testing.TB) *brokerLog {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &brokerLog{listener: l}
	b.done.Go(b.accept)
	t.Cleanup(func() { _ = l.Close(); b.done.Wait() })
	return b
}

func (b *brokerLog) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.done.Go(func() {
			defer func() { _ = conn.Close() }()
			var batch []logged
			if json.NewDecoder(conn).Decode(&batch) != nil {
				return
			}
			b.mu.Lock()
			b.log = append(b.log, batch...)
			b.mu.Unlock()
			_, _ = conn.Write([]byte{'\n'})
		})
	}
}

// check compares the log with how often each key was written.
func (b *brokerLog) check(t testing.TB, committed map[int]int) (repeats int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	last := map[int]int{}
	disorder := 0
	for _, m := range b.log {
		switch {
		case m.N == last[m.Key]+1:
			last[m.Key] = m.N
		case m.N <= last[m.Key]:
			repeats++
		default:
			disorder++
			if disorder < 10 {
				t.Errorf("key %d: %d came first after %d", m.Key, m.N, last[m.Key])
			}
			last[m.Key] = m.N
		}
	}
	for key, n := range committed {
		if last[key] != n {
			t.Errorf("key %d: %d events were committed, the last that came is %d", key, n, last[key])
		}
	}
	for key := range last {
		if committed[key] < last[key] {
			t.Errorf("key %d: %d events were committed, %d came", key, committed[key], last[key])
		}
	}
	return repeats
}
