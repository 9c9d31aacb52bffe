package brokertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A pulse finds out for how long this process got no processor: it wants to run every few milliseconds, does a little work, and
// keeps the longest time that this took. A case whose process was kept waiting for a good part of a lease says nothing about the
// adapter: messages are really lost then, to other processes. Nor does one whose broker, another process, stood still for as
// long, which is asked for an answer all the time ([Harness.Probe]).
type pulse struct {
	lease time.Duration
	end   context.CancelFunc
	done  sync.WaitGroup
	// The longest waits so far, in nanoseconds: for a processor, and for an answer.
	most, answer atomic.Int64
}

const pulseEvery = 5 * time.Millisecond

// startPulse begins one for a case with such a lease; probe may be nil.
func startPulse(lease time.Duration, probe func(context.Context) error) *pulse {
	ctx, end := context.WithCancel(context.Background())
	p := &pulse{lease: lease, end: end}
	p.done.Go(func() { p.run(ctx) })
	if probe != nil {
		p.done.Go(func() { p.ask(ctx, probe) })
	}
	return p
}

// ask asks the broker again and again. An answer that says no is one as well, and who still waits when the pulse ends has waited
// until then.
func (p *pulse) ask(ctx context.Context, probe func(context.Context) error) {
	for ctx.Err() == nil {
		before := time.Now()
		_ = probe(ctx)
		p.answer.Store(max(p.answer.Load(), int64(time.Since(before))))
		select {
		case <-ctx.Done():
		case <-time.After(p.lease / 16):
		}
	}
}

func (p *pulse) run(ctx context.Context) {
	tick := time.NewTimer(pulseEvery)
	defer tick.Stop()
	for {
		before := time.Now()
		select {
		case <-ctx.Done():
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

// starved says whether the longest wait so far was a good part of a lease. To be answered takes longer than to be let run.
func (p *pulse) starved() bool {
	return time.Duration(p.most.Load()) >= p.lease/16 || time.Duration(p.answer.Load()) >= p.lease/4
}

// stop ends the pulse. What it found out is not for others to change then.
func (p *pulse) stop() {
	p.end()
	p.done.Wait()
}

// text names the longest waits.
func (p *pulse) text() string {
	text := fmt.Sprintf("the longest wait for a processor was %v", time.Duration(p.most.Load()))
	if d := time.Duration(p.answer.Load()); d > 0 {
		text += fmt.Sprintf(", for an answer of the broker %v", d)
	}
	return text
}
