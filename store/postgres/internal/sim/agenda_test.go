package sim_test

import (
	"cmp"
	"container/heap"
	"sync"
	"testing/synctest"
	"time"
)

// grain is the unit of what takes its time here.
const grain = 10 * time.Millisecond

// agenda is all that is going to happen, one moment after the other: by time, and at the same time by name, so that the
// order does not depend on which goroutine asked first.
type agenda struct {
	mu      sync.Mutex
	moments moments
	count   int
	wake    time.Time     // when run looks again by itself
	earlier chan struct{} // something was added that comes before that
}

// moment is something that happens at once, while every goroutine waits for something else.
type moment struct {
	due  time.Time
	name string
	nth  int
	do   func()
}

func newAgenda() *agenda { return &agenda{earlier: make(chan struct{}, 1)} }

// after adds a moment. Names of moments that different goroutines add at the same time must differ.
func (a *agenda) after(d time.Duration, name string, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	due := time.Now().Add(d)
	heap.Push(&a.moments, &moment{due: due, name: name, nth: a.count, do: do})
	if due.Before(a.wake) {
		select {
		case a.earlier <- struct{}{}:
		default:
		}
	}
}

// run lets the moments happen until over says that it is enough.
func (a *agenda) run(over func() bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		synctest.Wait() // what the last moment set off is done, and timers of this time have fired
		if over() {
			return
		}
		if next := a.take(); next != nil {
			next.do()
			continue
		}
		timer.Reset(time.Until(a.wake))
		select {
		case <-timer.C:
		case <-a.earlier:
		}
	}
}

// take returns the next moment if its time has come, and otherwise notes when that is.
func (a *agenda) take() *moment {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.moments) == 0 {
		a.wake = time.Now().Add(time.Second)
		return nil
	}
	if next := a.moments[0]; next.due.After(time.Now()) {
		a.wake = next.due
		return nil
	}
	return heap.Pop(&a.moments).(*moment) //nolint:errcheck,forcetypeassert // nothing else is pushed
}

type moments []*moment

func (m moments) Len() int      { return len(m) }
func (m moments) Swap(i, j int) { m[i], m[j] = m[j], m[i] }

func (m moments) Less(i, j int) bool {
	a, b := m[i], m[j]
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.name, b.name), cmp.Compare(a.nth, b.nth)) < 0
}

// Push is for container/heap.
func (m *moments) Push(x any) { *m = append(*m, x.(*moment)) } //nolint:errcheck,forcetypeassert // nothing else

// Pop is for container/heap.
func (m *moments) Pop() any {
	last := len(*m) - 1
	x := (*m)[last]
	*m = (*m)[:last]
	return x
}
