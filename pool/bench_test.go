package pool_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

const benchWorkers = 64

type chunk struct{ messages [64]int }

var sink [benchWorkers * 64]int // one per worker, far enough apart

// BenchmarkHandOff is the cost of a no-op message from one submitter to 64 workers, in ns per message.
func BenchmarkHandOff(b *testing.B) {
	b.Run("channel", func(b *testing.B) { benchChannel(b) })
	b.Run("pool/single", func(b *testing.B) { benchSubmit(b, 0) })
	b.Run("pool/single/workers=1to256", func(b *testing.B) { benchSubmitSized(b, 0, 1, 256) })
	b.Run("pool/SubmitAll=64", func(b *testing.B) { benchSubmit(b, 64) })
	b.Run("pool/chunk=64", benchChunks)
	for _, w := range []int{2, 256} {
		b.Run(fmt.Sprintf("channel/workers=%d", w), func(b *testing.B) { benchChannelOf(b, w) })
		b.Run(fmt.Sprintf("pool/single/workers=%d", w), func(b *testing.B) { benchSubmitOf(b, 0, w) })
	}
}

func benchChannel(b *testing.B) { benchChannelOf(b, benchWorkers) }

func benchChannelOf(b *testing.B, workers int) {
	b.ReportAllocs()
	ch := make(chan int, 1024)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			n := 0
			for range ch {
				n++
			}
			sink[w%benchWorkers*64] = n
		})
	}
	b.ResetTimer()
	for i := range b.N {
		ch <- i
	}
	close(ch)
	wg.Wait()
}

func benchSubmit(b *testing.B, all int) { benchSubmitOf(b, all, benchWorkers) }

func benchSubmitOf(b *testing.B, all, workers int) { benchSubmitSized(b, all, workers, workers) }

func benchSubmitSized(b *testing.B, all, least, most int) {
	b.ReportAllocs()
	p := newPool(b, pool.Config[int]{Min: least, Max: most, Do: func(w *pool.Worker[int], i int) {}})
	ctx := context.Background()
	ts := make([]int, all)
	b.ResetTimer()
	if all == 0 {
		for i := range b.N {
			_ = p.Submit(ctx, 0, i)
		}
	} else {
		for i := 0; i < b.N; i += all {
			_, _ = p.SubmitAll(ctx, 0, ts)
		}
	}
	drain(b, p)
}

func benchChunks(b *testing.B) {
	b.ReportAllocs()
	p := newPool(b, pool.Config[*chunk]{Min: benchWorkers, Max: benchWorkers, Count: func(*chunk) int { return 64 },
		Do: func(w *pool.Worker[*chunk], c *chunk) {
			n := 0
			for range c.messages {
				n++
			}
			w.Report(n, 0)
		}})
	ctx := context.Background()
	cs := make([]*chunk, 256)
	for i := range cs {
		cs[i] = new(chunk)
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += 64 {
		_ = p.Submit(ctx, 0, cs[i/64%len(cs)])
	}
	drain(b, p)
}

func newPool[T any](t testing.TB, cfg pool.Config[T]) *pool.Pool[T] {
	t.Helper()
	p, err := pool.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() { // what a test left behind when it failed would end the whole run, with a panic of its bubble
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, _ = p.Drain(ctx)
		}
	})
	return p
}

func drain[T any](t testing.TB, p *pool.Pool[T]) {
	t.Helper()
	if stuck, err := p.Drain(context.Background()); stuck != 0 || err != nil {
		t.Errorf("Drain: %d stuck, %v", stuck, err)
	}
}
