package brokertest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-outbox/outbox/broker/brokertest"
)

// recorder is a T that remembers what a case says instead of failing a test.
type recorder struct {
	name string
	ctx  context.Context //nolint:containedctx // as testing.T does

	mu       sync.Mutex
	failures []string
	skip     string
	cleanups []func()
}

var _ brokertest.T = (*recorder)(nil)

// verdict runs one case in a bubble of its own, where time passes at once.
func verdict(t *testing.T, c brokertest.Case, h brokertest.Harness) (failures []string, skip string) {
	t.Helper()
	var r *recorder
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r = &recorder{name: c.Name, ctx: ctx}
		r.do(func() { c.Run(r, h) })
		for _, f := range slices.Backward(r.cleanups) {
			r.do(f)
		}
	})
	return r.failures, r.skip
}

// do runs f in a goroutine, which Fatalf and Skipf can end.
func (r *recorder) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) Helper()                  {}
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.skip = fmt.Sprintf(format, args...)
	r.mu.Unlock()
	runtime.Goexit()
}
