package consumer

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// A schedule holds things until they are due: one timer for all of them.
type schedule[T any] struct {
	mu    sync.Mutex
	items dueHeap[T]
	wake  chan struct{} // an earlier one was added
}

type due[T any] struct {
	at    time.Time
	item  T
	index int // in the heap; -1: not there any more
}

func newSchedule[T any]() *schedule[T] { return &schedule[T]{wake: make(chan struct{}, 1)} }

// add holds item until at. It does not block. What it returns is for remove.
func (s *schedule[T]) add(at time.Time, item T) *due[T] {
	d := &due[T]{at: at, item: item}
	s.mu.Lock()
	heap.Push(&s.items, d)
	first := s.items[0].at.Equal(at)
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return d
}

// remove takes out one item before it is due. False: it is not held any more.
func (s *schedule[T]) remove(d *due[T]) (item T, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.index < 0 {
		return item, false
	}
	heap.Remove(&s.items, d.index)
	return d.leave(), true
}

// leave takes out what is held no more: who may remove it may keep d for long.
func (d *due[T]) leave() (item T) {
	var none T
	item, d.item = d.item, none
	return item
}

// take removes and returns all that match, in no order.
func (s *schedule[T]) take(match func(T) bool) (out []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := s.items[:0]
	for _, d := range s.items {
		if match(d.item) {
			out = append(out, d.leave())
			d.index = -1
		} else {
			d.index = len(keep)
			keep = append(keep, d)
		}
	}
	clear(s.items[len(keep):])
	s.items = keep
	heap.Init(&s.items)
	return out
}

// each calls do with all that is held, in no order, under the lock.
func (s *schedule[T]) each(do func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.items {
		do(d.item)
	}
}

// len is how many are held.
func (s *schedule[T]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}

// pop removes and returns what is due, and how long until the next; 0: there is none.
func (s *schedule[T]) pop(now time.Time) (out []T, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.items) > 0 && !s.items[0].at.After(now) {
		out = append(out, heap.Pop(&s.items).(*due[T]).leave())
	}
	if len(s.items) > 0 {
		wait = s.items[0].at.Sub(now)
	}
	return out, wait
}

// run calls do with each item when it is due, until ctx ends; what is still held then stays.
func (s *schedule[T]) run(ctx context.Context, do func(T)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		items, wait := s.pop(time.Now())
		for _, it := range items {
			do(it)
		}
		if len(items) > 0 {
			continue
		}
		if wait == 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

type dueHeap[T any] []*due[T]

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *dueHeap[T]) Push(x any) {
	d := x.(*due[T])
	d.index = len(*h)
	*h = append(*h, d)
}
func (h *dueHeap[T]) Pop() any {
	old := *h
	n := len(old) - 1
	x := old[n]
	x.index = -1
	old[n] = nil
	*h = old[:n]
	return x
}
