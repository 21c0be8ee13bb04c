package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync/atomic"
)

// runs tells the runs of goroutinesOf apart, in a process where many tests run at once.
var runs atomic.Int64

// goroutinesOf runs f and returns a function that tells the stacks of the goroutines that f has started, directly or
// not, and that are still there; empty when none are. Goroutines inherit the profiling labels of the one that starts
// them, so other tests in the process do no harm.
func goroutinesOf(f func()) (left func() string) {
	id := fmt.Sprint("run-", runs.Add(1))
	pprof.Do(context.Background(), pprof.Labels("brokertest", id), func(context.Context) { f() })
	mark := fmt.Sprintf("%q:%q", "brokertest", id)
	return func() string {
		var all bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // writing to a buffer never fails
		var out []string
		for group := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(group, mark) {
				out = append(out, group)
			}
		}
		return strings.Join(out, "\n\n")
	}
}
