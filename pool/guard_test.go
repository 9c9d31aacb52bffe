package pool_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

func TestRuntimeGaugeReadsTheMemoryLimit(t *testing.T) {
	if p := pool.RuntimeGauge()(); p.Memory < 0 || p.CPU < 0 || p.CPU > 1 {
		t.Errorf("without a limit: %+v", p)
	}
	was := debug.SetMemoryLimit(1 << 40)
	defer debug.SetMemoryLimit(was)
	wait := time.Now().Add(time.Minute)
	p := pool.RuntimeGauge()()
	for p.Memory == 0 && time.Now().Before(wait) { // the last reading holds for some milliseconds
		p = pool.RuntimeGauge()()
	}
	if p.Memory <= 0 || p.Memory > 0.1 {
		t.Errorf("of a TB: %+v", p)
	}
}

// Each resource can be read alone, and by many at once.
func TestRuntimeGaugeReadsWhatIsNamed(t *testing.T) {
	was := debug.SetMemoryLimit(1 << 40)
	defer debug.SetMemoryLimit(was)
	cpu, memory := pool.RuntimeGauge(pool.CPU), pool.RuntimeGauge(pool.Memory)
	var wg sync.WaitGroup
	least := time.Now().Add(200 * time.Millisecond)
	stop := least.Add(time.Minute)
	most := [4]float64{}
	for i := range 4 {
		wg.Go(func() { // computes; on a busy machine it may take longer until it had a processor
			for now := time.Now(); now.Before(least) || most[i] == 0 && now.Before(stop); now = time.Now() {
				if p := cpu(); p.Memory != 0 {
					t.Errorf("only the CPU was asked for: %+v", p)
				} else {
					most[i] = max(most[i], p.CPU)
				}
			}
		})
	}
	wg.Wait()
	if most[0] <= 0 || most[0] > 1 {
		t.Errorf("while four goroutines compute, %v of the processors are in use at most", most)
	}
	if p := memory(); p.CPU != 0 || p.Memory <= 0 {
		t.Errorf("only memory was asked for: %+v", p)
	}
}

// The manager stays within memory by itself: handlers hold it, the pool lets go of workers, but not of Min.
func TestManagerMindsMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var busy atomic.Int64
		var reasons []string
		p := newPool(t, pool.Config[int]{Min: 2, Max: 256, Queue: 10_000,
			Do: func(intWorker, int) { busy.Add(1); time.Sleep(10 * time.Millisecond); busy.Add(-1) },
			// each holds a fiftieth of the limit
			Gauge:   func() pool.Pressure { return pool.Pressure{Memory: float64(busy.Load()) / 50} },
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

// What the process holds beside its workers is not theirs: where memory is not full there may be more of them, however few there
// are.
func TestManagerMindsMemoryThatIsNotTheWorkers(t *testing.T) {
	for memory, least := range map[float64]int{0.5: 60, 0.8: 60, 0.89: 60, 0.9: 1} { // workers, after a minute
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPool(t, pool.Config[int]{Max: 64, Do: func(intWorker, int) { time.Sleep(100 * time.Millisecond) },
					Gauge: func() pool.Pressure { return pool.Pressure{Memory: memory} }}) // whatever the workers do
				ctx, stop := context.WithCancel(t.Context())
				go func() {
					for p.Submit(ctx, 0, 1) == nil {
					}
				}()
				time.Sleep(time.Minute)
				if n := p.Stats().Live; n < least || least == 1 && n > 1 {
					t.Errorf("%d workers with a backlog, want %d", n, least)
				}
				stop()
				drain(t, p)
			})
		})
	}
}
