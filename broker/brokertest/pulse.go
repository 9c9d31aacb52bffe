package brokertest

import (
	"sync"
	"sync/atomic"
	"time"
)

// A pulse finds out for how long this process got no processor: it wants to run every few milliseconds, does a little work, and
// keeps the longest time that this took. A case whose process was kept waiting for a good part of a lease says nothing about the
// adapter: messages are really lost then, to other processes.
type pulse struct {
	end  chan struct{}
	done sync.WaitGroup
	most atomic.Int64 // nanoseconds
}

const pulseEvery = 5 * time.Millisecond

func startPulse() *pulse {
	p := &pulse{end: make(chan struct{})}
	p.done.Go(p.run)
	return p
}

func (p *pulse) run() {
	tick := time.NewTimer(pulseEvery)
	defer tick.Stop()
	for {
		before := time.Now()
		select {
		case <-p.end:
			return
		case <-tick.C:
		}
		var hops sync.WaitGroup // as an exchange with a broker would be: goroutines that wait for each other
		for range 8 {
			hops.Go(func() {})
			hops.Wait()
		}
		p.most.Store(max(p.most.Load(), int64(time.Since(before)-pulseEvery)))
		tick.Reset(pulseEvery)
	}
}

// starved says whether the longest wait so far was a good part of a lease.
func (p *pulse) starved(lease time.Duration) bool { return time.Duration(p.most.Load()) >= lease/16 }

// stop returns the longest wait.
func (p *pulse) stop() time.Duration {
	close(p.end)
	p.done.Wait()
	return time.Duration(p.most.Load())
}
