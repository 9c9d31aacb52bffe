package pool_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/longshoremq/longshore/pool"
)

func TestSubmittedWorkIsHandledOnce(t *testing.T) {
	const n = 100_000
	var seen [n]atomic.Int32
	p, err := pool.New(pool.Config[int]{Do: func(_ *pool.Worker[int], i int) { seen[i].Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := p.Submit(context.Background(), 0, i); err != nil {
			t.Fatal(err)
		}
	}
	if stuck, err := p.Drain(context.Background()); stuck != 0 || err != nil {
		t.Fatalf("Drain: %d stuck, %v", stuck, err)
	}
	for i := range seen {
		if got := seen[i].Load(); got != 1 {
			t.Fatalf("T %d was handled %d times", i, got)
		}
	}
}
