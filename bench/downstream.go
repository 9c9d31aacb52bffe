package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/pool"
)

// A downstream is how long a call takes while so many run at once.
type downstream func(busy int) time.Duration

// knee serves 24 calls at once in 8 ms; with more each takes longer by the square, so that less comes out.
func knee(busy int) time.Duration {
	crowd := math.Max(1, math.Pow(float64(busy)/24, 2))
	return time.Duration(float64(8*time.Millisecond) * crowd * (0.9 + 0.2*rand.Float64()))
}

// cliff takes a second for each call beyond 40 at once, as a pool of connections that times out.
func cliff(busy int) time.Duration {
	if busy > 40 {
		return time.Second
	}
	return time.Duration(float64(10*time.Millisecond) * (0.9 + 0.2*rand.Float64()))
}

// crowded is the whole framework on JetStream with a handler that calls a downstream. size > 0: so many workers; else the pool
// has 1 to 256 and finds out. It measures the second half, so that a pool has had time for that.
func crowded(url string, n, size int, call downstream) sample {
	r := newRun(url, n-n/2)
	r.durable()
	source := must(natsbroker.NewSource(natsbroker.Config{Connection: natsbroker.Connection{URLs: []string{url}},
		Stream: benchStream, Consumer: r.name, Bind: true}))
	workers := consumer.Pool{Max: 256}
	if size > 0 {
		workers = consumer.Pool{Min: size, Max: size}
	}
	var busy, done atomic.Int64
	c := must(consumer.New(consumer.Config{Source: source, Pool: workers,
		Handler: func(context.Context, *consumer.Message) error {
			time.Sleep(call(int(busy.Add(1))))
			busy.Add(-1)
			if done.Add(1) > int64(n/2) {
				r.saw()
			}
			return nil
		}}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	<-r.done.done
	cancel()
	check(<-ended)
	return r.result(n - n/2)
}

// vsFixed is the throughput beside that of the fixed size that is best.
func vsFixed(name string) func(map[string]sample) []figure {
	return func(m map[string]sample) []figure {
		return []figure{
			atLeast(name+"_throughput_vs_best_fixed", m["fixed"].WallNS/m["pool"].WallNS, 0.8),
			show(name+"_messages_per_second_pool", 1e9/m["pool"].WallNS), show(name+"_messages_per_second_fixed", 1e9/m["fixed"].WallNS),
		}
	}
}

// compute keeps a processor busy for some milliseconds.
func compute() {
	x := uint64(1)
	for range 4_000_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

var sink atomic.Uint64

// computing are tasks that compute. size > 0: so many workers; else 1 to 256 that mind the gauge. every > 0: one is submitted
// each such time; else all at once. The tail is the 99th percentile from when a task was due until it was done.
func computing(n, size int, every time.Duration) sample {
	cfg := pool.Config[time.Time]{Min: size, Max: size, Queue: n}
	if size == 0 {
		cfg = pool.Config[time.Time]{Max: 256, Queue: n, Gauge: pool.RuntimeGauge(pool.CPU)}
	}
	waits, next := make([]time.Duration, n), atomic.Int64{}
	cfg.Do = func(_ *pool.Worker[time.Time], due time.Time) {
		compute()
		waits[next.Add(1)-1] = time.Since(due)
	}
	p := must(pool.New(cfg))
	m := start()
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * every)
		time.Sleep(time.Until(due))
		check(p.Submit(context.Background(), 0, due))
	}
	if stuck, err := p.Drain(context.Background()); err != nil || stuck > 0 {
		panic(fmt.Sprintf("%d stuck: %v", stuck, err))
	}
	s := m.stop(n)
	slices.Sort(waits)
	s.Tail = float64(waits[n*99/100])
	return s
}

// computeFigures hold the gauge against the best of some fixed sizes.
func computeFigures(m map[string]sample) []figure {
	best, tail := math.Inf(1), math.Inf(1)
	for _, size := range []string{"1", "2", "4", "8"} {
		best = min(best, m["fixed_"+size].WallNS)
		tail = min(tail, m["paced_fixed_"+size].Tail)
	}
	return []figure{
		atLeast("computing_throughput_vs_best_fixed", best/m["gauge"].WallNS, 0.75),
		atMost("computing_p99_vs_best_fixed", m["paced_gauge"].Tail/tail, 1.25),
		show("computing_p99_ms_gauge", m["paced_gauge"].Tail/1e6), show("computing_p99_ms_best_fixed", tail/1e6),
		show("computing_tasks_per_second_gauge", 1e9/m["gauge"].WallNS), show("computing_tasks_per_second_best_fixed", 1e9/best),
	}
}

// computingSystems are those of computeFigures.
func computingSystems() (all []system) {
	for _, size := range []int{1, 2, 4, 8, 0} {
		name := fmt.Sprintf("fixed_%d", size)
		if size == 0 {
			name = "gauge"
		}
		all = append(all,
			local(name, 640, func(n int) sample { return computing(n, size, 0) }),
			local("paced_"+name, 320, func(n int) sample { return computing(n, size, 8*time.Millisecond) }))
	}
	return all
}
