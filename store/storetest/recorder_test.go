package storetest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/store/storetest"
)

// recorder is a testing.TB whose failure is a result, not a failure of the test that uses it.
type recorder struct {
	testing.TB
	name string
	ctx  context.Context //nolint:containedctx // testing.TB has one

	mu              sync.Mutex
	failed, skipped bool
	text            []string
	cleanups        []func()
}

// try runs a case and returns what became of it.
func try(t testing.TB, c storetest.Case, h storetest.Harness) *recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, name: t.Name() + "/" + c.Name, ctx: ctx}
	done := make(chan struct{})
	go func() { // of its own, because FailNow ends it
		defer close(done)
		defer r.clean()
		defer cancel()
		c.Run(r, h)
	}()
	<-done
	return r
}

func (r *recorder) clean() {
	for {
		r.mu.Lock()
		last := len(r.cleanups) - 1
		if last < 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.mu.Unlock()
		f()
	}
}

func (r *recorder) note(failed, skipped bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed, r.skipped = r.failed || failed, r.skipped || skipped
	r.text = append(r.text, text)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

// said is everything that was logged.
func (r *recorder) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.text)
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Helper()                  {}
func (r *recorder) Log(args ...any)          { r.note(false, false, fmt.Sprint(args...)) }
func (r *recorder) Logf(format string, args ...any) {
	r.note(false, false, fmt.Sprintf(format, args...))
}
func (r *recorder) Error(args ...any) { r.note(true, false, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.note(true, false, fmt.Sprintf(format, args...))
}
func (r *recorder) Fail()                             { r.note(true, false, "fail") }
func (r *recorder) FailNow()                          { r.note(true, false, "fail now"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }

func (r *recorder) SkipNow() { r.note(false, true, "skip"); runtime.Goexit() }

func (r *recorder) Skip(args ...any) { r.note(false, true, fmt.Sprint(args...)); runtime.Goexit() }

func (r *recorder) Skipf(format string, args ...any) {
	r.note(false, true, fmt.Sprintf(format, args...))
	runtime.Goexit()
}
