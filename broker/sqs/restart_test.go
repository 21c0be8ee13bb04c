package sqs_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/core"
)

// elastic is an ElasticMQ of one test's own, which keeps its messages on disk, so that it can be restarted.
type elastic struct {
	t         *testing.T
	java, dir string
	libs      string
	port      int
	server    *exec.Cmd
}

// startElastic starts one with the libraries that scripts/services has downloaded.
func startElastic(t *testing.T) *elastic {
	t.Helper()
	elasticMQ(t)
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	libs, _ := filepath.Glob(filepath.Join(servicesDir(), "sqs", "libs-*"))
	java, _ := filepath.Glob("/usr/lib/jvm/java-17-*/bin/java")
	if found, err := exec.LookPath("java"); err == nil {
		java = append(java, found)
	}
	if len(libs) == 0 || len(java) == 0 {
		t.Skip("no ElasticMQ or no Java is installed here")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // the port is known
	e := &elastic{t: t, java: java[0], dir: t.TempDir(), libs: libs[len(libs)-1]}
	e.port = listener.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // a TCP listener
	t.Cleanup(func() {
		if e.server != nil {
			_ = e.server.Process.Kill()
			_ = e.server.Wait()
		}
	})
	config := fmt.Sprintf(`include classpath("application.conf")
node-address { protocol = http, host = 127.0.0.1, port = %[1]d, context-path = "" }
rest-sqs { enabled = true, bind-port = %[1]d, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
messages-storage { enabled = true, uri = "jdbc:h2:%[2]s/elasticmq" }
queues-storage { enabled = true, path = "%[2]s/queues.conf" }
`, e.port, e.dir)
	if err := os.WriteFile(filepath.Join(e.dir, "elasticmq.conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

// servicesDir is where scripts/services keeps its downloads.
func servicesDir() string {
	if dir := os.Getenv("OUTBOX_SERVICES_DIR"); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/var/cache/outbox-services"
	}
	cache, _ := os.UserCacheDir() // "" finds nothing
	return filepath.Join(cache, "outbox-services")
}

func (e *elastic) config() sqs.Config {
	config := configOf(fmt.Sprintf("http://127.0.0.1:%d", e.port))
	config.MaxMessageBytes, config.RequestTimeout = elasticMQLimit, 5*time.Second
	return config
}

func (e *elastic) start() {
	e.t.Helper()
	e.server = exec.CommandContext(context.WithoutCancel(e.t.Context()), e.java, "-Xmx256m",
		"-Dconfig.file="+filepath.Join(e.dir, "elasticmq.conf"), "-cp", e.libs+"/*", "org.elasticmq.server.Main")
	if err := e.server.Start(); err != nil {
		e.t.Fatal(err)
	}
	broker := open(e.t, e.config())
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); broker.Check(e.t.Context()) != nil; <-tick.C {
		if time.Now().After(deadline) {
			e.t.Fatalf("ElasticMQ does not come up: %v", broker.Check(e.t.Context()))
		}
	}
}

// restart ends the server in order, as an operator does, and starts it again.
func (e *elastic) restart() {
	e.t.Helper()
	if err := e.server.Process.Signal(syscall.SIGTERM); err != nil {
		e.t.Fatal(err)
	}
	_ = e.server.Wait() // it ends with the signal
	e.start()
}

// witness is a broker of which is known when the server said that it has an event.
type witness struct {
	*sqs.Broker
	mu       sync.Mutex
	answered map[string]time.Time
}

func (w *witness) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	results := w.Broker.PublishBatch(ctx, batch)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range results {
		if r.Outcome == core.OutcomeDelivered {
			w.answered[batch[i].Record.EventID] = time.Now()
		}
	}
	return results
}

// ElasticMQ restarts while dispatchers publish to it: a client of its own finds every event in the queue, first
// occurrences in order. But ElasticMQ answers before it has written, so that what it said it had in its last moments,
// and only that, may be missing.
func TestRestartUnderADispatcher(t *testing.T) {
	t.Parallel()
	const lastMoments = time.Second
	e := startElastic(t)
	e.start()
	reader := newReader(t, e.config())
	reader.create("orders")
	s := newShop(t)
	w := &witness{Broker: open(t, e.config()), answered: map[string]time.Time{}}
	for range 2 {
		s.dispatch(w)
	}
	events := func(rounds int) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range rounds {
			<-tick.C
			s.write("orders", 3)
		}
	}
	events(20)
	var writing sync.WaitGroup
	writing.Go(func() { events(20) })
	began := time.Now()
	e.restart()
	ended := time.Now()
	writing.Wait()
	events(20)
	s.sold()
	if s.paused() == 0 {
		t.Error("no dispatcher has noticed the restart")
	}
	var arrived []string
	for _, m := range reader.read("orders") {
		arrived = append(arrived, m.Headers[core.HeaderEventID])
	}
	s.records = slices.DeleteFunc(s.records, func(r *core.Record) bool {
		at := w.answered[r.EventID]
		return !slices.Contains(arrived, r.EventID) && at.After(began.Add(-lastMoments)) && at.Before(ended)
	})
	s.wantFirst(arrived)
}
