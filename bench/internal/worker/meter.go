package worker

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

var (
	_ core.Observer   = (*meter)(nil)
	_ pgx.QueryTracer = (*meter)(nil)
	_ pgx.BatchTracer = (*meter)(nil)
)

// meter counts what a worker does. Safe for concurrent use.
type meter struct {
	mu        sync.Mutex
	start     time.Time
	took      time.Duration
	cpu       time.Duration // at the start
	mallocs   uint64        // at the start
	published int
	trips     int
	fetches   []float64
}

func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cpu, m.mallocs = cpuTime(), allocated()
	m.start = time.Now()
}

// finish notes the end of the work; only the first call counts.
func (m *meter) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.took == 0 {
		m.took = time.Since(m.start)
	}
}

// add counts acknowledged messages and returns how many there are.
func (m *meter) add(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.published += n
	return m.published
}

func (m *meter) sample() Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Sample{
		Took: m.took, CPU: cpuTime() - m.cpu, Mallocs: allocated() - m.mallocs, RSS: peakMemory(),
		Published: m.published, RoundTrips: m.trips, FetchMillis: m.fetches,
	}
	m.fetches = nil
	return s
}

// Observe is told by our dispatcher.
func (m *meter) Observe(event core.Event) {
	switch e := event.(type) {
	case core.FetchEvent:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.fetches = append(m.fetches, float64(e.Took.Microseconds())/1000)
	case core.SettleEvent:
		if e.Err == nil {
			m.add(e.Published)
		}
	}
}

// TraceQueryStart is told by pgx of each statement sent alone.
func (m *meter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	m.trip()
	return ctx
}

// TraceQueryEnd has nothing to add.
func (m *meter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart is told by pgx of statements sent together.
func (m *meter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	m.trip()
	return ctx
}

// TraceBatchQuery has nothing to add: the statements of a batch share its round trip.
func (m *meter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd has nothing to add.
func (m *meter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (m *meter) trip() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trips++
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func allocated() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.Mallocs
}

// peakMemory is the most that was resident. getrusage has it too, but there a process inherits its parent's peak.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	return PeakMemory(status)
}

// PeakMemory finds the peak in bytes in the status file of a process; 0 when it is not there.
func PeakMemory(status []byte) int64 {
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return kib << 10
}
