package ordering

import (
	"container/heap"
	"time"
)

// dueHeap orders the closed keys whose head waits for its time.
type dueHeap[T any] []*keyState[T]

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dueIndex, h[j].dueIndex = i, j
}

// Push is for container/heap.
func (h *dueHeap[T]) Push(x any) {
	k := x.(*keyState[T]) //nolint:errcheck,forcetypeassert // nothing else is pushed
	k.dueIndex = len(*h)
	*h = append(*h, k)
}

// Pop is for container/heap.
func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	k := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	k.dueIndex = -1
	return k
}

// setDue makes the key's head due at the time.
func (g *Gate[T]) setDue(k *keyState[T], due time.Time) {
	k.due, k.forOutlet = due, false
	if k.dueIndex >= 0 {
		heap.Fix(&g.due, k.dueIndex)
		return
	}
	heap.Push(&g.due, k)
}

// undue takes the key's head out of those that wait for their time.
func (g *Gate[T]) undue(k *keyState[T]) {
	k.forOutlet = false
	if k.dueIndex >= 0 {
		heap.Remove(&g.due, k.dueIndex)
	}
}
