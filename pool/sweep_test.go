package pool_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// A parcel is a T whose messages others may take.
type parcel struct {
	no   int
	n    atomic.Int64
	seen atomic.Int32 // how often it was done or swept out
}

func parcels(n int) []*parcel {
	ls := make([]*parcel, n)
	for i := range ls {
		ls[i] = &parcel{no: i}
		ls[i].n.Store(1)
	}
	return ls
}

// TestSweep: what was emptied while it waited is no backlog any more, makes room for who waits for that, and is done by nobody.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var mu sync.Mutex
		var done []int
		p := newPool(t, pool.Config[*parcel]{Min: 1, Max: 1, Queue: 4, Weights: []int{1, 1},
			Count: func(l *parcel) int { return int(l.n.Load()) },
			Do: func(_ *pool.Worker[*parcel], l *parcel) {
				<-end
				mu.Lock()
				defer mu.Unlock()
				done = append(done, l.no)
			}})
		ls := parcels(7)
		go func() { // the worker has one, four wait, and two do not fit in
			if n, err := p.SubmitAll(t.Context(), 1, ls); n != len(ls) || err != nil {
				t.Errorf("%d were taken: %v", n, err)
			}
		}()
		synctest.Wait()
		if empty := p.Sweep(); len(empty) != 0 {
			t.Errorf("%d were swept out, want none", len(empty))
		}
		for _, i := range []int{1, 3, 4, 6} {
			ls[i].n.Store(0)
		}
		var swept []int
		for _, l := range p.Sweep() {
			swept = append(swept, l.no)
		}
		if want := []int{1, 3, 4, 6}; !slices.Equal(swept, want) {
			t.Errorf("%v were swept out, want %v", swept, want)
		}
		if s := p.Stats(); s.Backlog != 2 || s.Queued != 2 || s.Blocked != 0 {
			t.Errorf("%d messages and %d in the queue, %d blocked; want 2, 2, none", s.Backlog, s.Queued, s.Blocked)
		}
		close(end)
		if _, err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []int{0, 2, 5}; !slices.Equal(done, want) {
			t.Errorf("%v were done, want %v", done, want)
		}
	})
}

// TestSweepBesideASplit: the first that waits is empty, and before it is swept out a worker has it, and the rest of it waits in
// its place. That is done.
func TestSweepBesideASplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late, split atomic.Bool
		var mu sync.Mutex
		var done []int
		p := newPool(t, pool.Config[*parcel]{Min: 1, Max: 1,
			Count: func(l *parcel) int {
				if late.CompareAndSwap(true, false) {
					time.Sleep(time.Second)
				}
				return int(l.n.Load())
			},
			Split: func(l *parcel) (*parcel, bool) {
				if l.no != 1 || !split.CompareAndSwap(false, true) {
					return nil, false
				}
				rest := &parcel{no: 10}
				rest.n.Store(1)
				return rest, true
			},
			Do: func(_ *pool.Worker[*parcel], l *parcel) {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				done = append(done, l.no)
			}})
		ls := parcels(3)
		if _, err := p.SubmitAll(t.Context(), 0, ls); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		ls[1].n.Store(0)
		late.Store(true)
		if empty := p.Sweep(); len(empty) > 0 || !split.Load() {
			t.Errorf("%d was swept out, want none; one was split: %v", empty[0].no, split.Load())
		}
		if _, err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []int{0, 1, 10, 2}; !slices.Equal(done, want) {
			t.Errorf("%v were done, want %v", done, want)
		}
	})
}

// TestSweepBesideAll: whatever comes and goes meanwhile, each T is done or swept out, once, and what is swept out was empty.
func TestSweepBesideAll(t *testing.T) {
	const each, submitters = 2000, 4
	p := newPool(t, pool.Config[*parcel]{Min: 2, Max: 4, Queue: 32, Scan: time.Millisecond,
		Count: func(l *parcel) int { return int(l.n.Load()) },
		Split: func(l *parcel) (*parcel, bool) { // as if it were the rest
			rest := &parcel{no: -1}
			rest.n.Store(int64(l.no & 1))
			return rest, l.no > 0
		},
		Do: func(_ *pool.Worker[*parcel], l *parcel) {
			l.seen.Add(1)
			if l.no%500 == 250 {
				time.Sleep(5 * time.Millisecond)
			}
		}})
	var all [][]*parcel
	var wg, sweeps sync.WaitGroup
	for range submitters {
		ls := parcels(each)
		all = append(all, ls)
		wg.Go(func() {
			for part := range slices.Chunk(ls, 10) {
				if _, err := p.SubmitAll(context.Background(), 0, part); err != nil {
					t.Error(err)
				}
				part[3].n.Store(0)
				part[8].n.Store(0)
			}
		})
	}
	over := make(chan struct{})
	sweeps.Go(func() {
		for {
			for _, l := range p.Sweep() {
				if l.seen.Add(1); l.n.Load() != 0 {
					t.Error("one that has a message was swept out")
				}
			}
			select {
			case <-over:
				return
			default:
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	wg.Wait()
	if _, err := p.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	close(over)
	sweeps.Wait()
	for _, ls := range all {
		for _, l := range ls {
			if n := l.seen.Load(); n != 1 {
				t.Fatalf("%d was done or swept out %d times", l.no, n)
			}
		}
	}
	if s := p.Stats(); s.Backlog != 0 || s.Queued != 0 || s.InHand != 0 {
		t.Errorf("%d messages wait, %d in the queue, %d in hand", s.Backlog, s.Queued, s.InHand)
	}
}
