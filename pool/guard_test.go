package pool_test

import (
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

func TestRuntimeGaugeReadsTheMemoryLimit(t *testing.T) {
	if p := pool.RuntimeGauge()(); p.Memory != 0 || p.CPU < 0 || p.CPU > 1 || p.Wait < 0 {
		t.Errorf("without a limit: %+v", p)
	}
	was := debug.SetMemoryLimit(1 << 40)
	defer debug.SetMemoryLimit(was)
	if p := pool.RuntimeGauge()(); p.Memory <= 0 || p.Memory > 0.1 {
		t.Errorf("of a TB: %+v", p)
	}
}

// The manager stays within memory by itself: handlers hold it, the pool lets go of workers, but not of Min.
func TestManagerMindsMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var busy atomic.Int64
		var reasons []string
		p := newPool(t, pool.Config[int]{Min: 2, Max: 256, Queue: 10_000,
			Do:      func(intWorker, int) { busy.Add(1); time.Sleep(10 * time.Millisecond); busy.Add(-1) },
			Gauge:   func() pool.Pressure { return pool.Pressure{Memory: float64(busy.Load()) / 50} }, // each holds a fiftieth of the limit
			Observe: func(d pool.Decision) { reasons = append(reasons, d.Why()) }})
		go func() {
			for range 60_000 {
				_ = p.Submit(t.Context(), 0, 1)
			}
		}()
		time.Sleep(2 * time.Second)
		most := 0
		for range 1000 {
			time.Sleep(time.Millisecond)
			most = max(most, p.Stats().Live)
		}
		if most > 60 || most < 20 { // what is begun this moment is not in the gauge yet
			t.Errorf("up to %d workers where 45 fill the memory: %q", most, reasons)
		}
		time.Sleep(2 * time.Minute)
		drain(t, p)
	})
}
