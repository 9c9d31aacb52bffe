package pool_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// TestCrowdLeavesTheRestAlone: what comes in chunks to thousands of idle workers goes to some hundred of them, again and again,
// where a T is done soon once its worker has a processor.
func TestCrowdLeavesTheRestAlone(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other processor runs what is woken
	const workers, chunk = 4096, 128
	var used, done atomic.Int32
	p := newPool(t, pool.Config[int]{Min: workers, Max: workers, Do: func(w intWorker, _ int) {
		if w.Local == nil {
			w.Local = true
			used.Add(1)
		}
		done.Add(1)
	}})
	for p.Stats().Idle < workers {
		time.Sleep(time.Millisecond)
	}
	for range workers / chunk {
		if _, err := p.SubmitAll(context.Background(), 0, make([]int, chunk)); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, p)
	if done.Load() != workers || used.Load() > workers/2 {
		t.Errorf("%d were handled by %d workers of %d", done.Load(), used.Load(), workers)
	}
}
