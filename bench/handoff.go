package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alitto/pond/v2"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/longshoremq/longshore/pool"
)

const (
	workers   = 64
	chunkSize = 64
)

// noop and millisecond are one message's handling. They are variables, so that no system gets it inlined.
var noop = func(int) {}

var millisecond = func(int) { time.Sleep(time.Millisecond) }

// channelPool: one buffered channel and a fixed number of goroutines.
func channelPool(n int, do func(int)) sample {
	ch := make(chan int, 1024)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range ch {
				do(i)
			}
		})
	}
	m := start()
	for i := range n {
		ch <- i
	}
	close(ch)
	wg.Wait()
	return m.stop(n)
}

type chunk [chunkSize]int

// longshoreChunks is the pool as the engine uses it for short handlers: chunks of messages, one report for each.
func longshoreChunks(n int, do func(int)) sample {
	chunks := make([]*chunk, 512)
	for i := range chunks {
		chunks[i] = new(chunk)
	}
	p := must(pool.New(pool.Config[*chunk]{Min: workers, Max: workers, Count: func(*chunk) int { return chunkSize },
		Do: func(w *pool.Worker[*chunk], c *chunk) {
			for _, i := range c {
				do(i)
			}
			w.Report(chunkSize, time.Since(w.Began()))
		}}))
	m := start()
	for i := 0; i < n; i += chunkSize {
		check(p.Submit(context.Background(), 0, chunks[i/chunkSize%len(chunks)]))
	}
	drained(p)
	return m.stop(n)
}

// warmUp is how many messages a pool that begins with one worker is given before the clock starts.
const warmUp = 50_000

// longshoreSingle hands over one at a time, to a pool of 1 to 64 workers that decides itself.
func longshoreSingle(n, warm int, do func(int)) sample {
	p := must(pool.New(pool.Config[int]{Min: 1, Max: workers, Do: func(_ *pool.Worker[int], i int) { do(i) }}))
	for i := range warm {
		check(p.Submit(context.Background(), 0, i))
	}
	m := start()
	for i := range n {
		check(p.Submit(context.Background(), 0, i))
	}
	drained(p)
	return m.stop(n)
}

func drained[T any](p *pool.Pool[T]) {
	if stuck, err := p.Drain(context.Background()); stuck != 0 || err != nil {
		panic("the pool did not drain")
	}
}

func antsPool(n int, do func(int)) sample {
	p := must(ants.NewPool(workers))
	defer p.Release()
	var wg sync.WaitGroup
	wg.Add(n)
	m := start()
	for i := range n {
		check(p.Submit(func() { do(i); wg.Done() }))
	}
	wg.Wait()
	return m.stop(n)
}

func pondPool(n int, do func(int)) sample {
	p := pond.NewPool(workers, pond.WithQueueSize(1024))
	m := start()
	for i := range n {
		check(p.Go(func() { do(i) }))
	}
	p.StopAndWait()
	return m.stop(n)
}

func errgroupPool(n int, do func(int)) sample {
	var g errgroup.Group
	g.SetLimit(workers)
	m := start()
	for i := range n {
		g.Go(func() error { do(i); return nil })
	}
	check(g.Wait())
	return m.stop(n)
}

// workerPool is gammazero's, whose queue has no bound. That of fasthttp is not exported.
func workerPool(n int, do func(int)) sample {
	p := workerpool.New(workers)
	m := start()
	for i := range n {
		p.Submit(func() { do(i) })
	}
	p.StopWait()
	return m.stop(n)
}

// semaphoreOf starts a goroutine for each message, a bounded number at a time.
func semaphoreOf(n int, do func(int)) sample {
	s := semaphore.NewWeighted(workers)
	m := start()
	for i := range n {
		check(s.Acquire(context.Background(), 1))
		go func() {
			defer s.Release(1)
			do(i)
		}()
	}
	check(s.Acquire(context.Background(), workers))
	return m.stop(n)
}

// counter is a no-op handler that knows when the last message has come. One atomic add, the same for every system that uses it.
type counter struct {
	n    atomic.Int64
	want int64
	done chan struct{}
}

func newCounter(want int) *counter { return &counter{want: int64(want), done: make(chan struct{})} }

func (c *counter) add() {
	if c.n.Add(1) == c.want {
		close(c.done)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
