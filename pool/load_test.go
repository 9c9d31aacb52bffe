package pool_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// phase is a stretch of constant arrival rate, messages per second.
type phase struct {
	lasts time.Duration
	rate  float64
}

// load is one scenario: what arrives, and how long a handler takes for it.
type load struct {
	name     string
	min, max int
	queue    int
	phases   []phase
	poisson  bool
	// service is the handler's time, given how many run at once, the time since the start, and a random number of the message's own.
	service func(busy int, at time.Duration, r *rand.Rand) time.Duration
	need    int // workers that the graded phase needs
	graded  int // index of it; -1: all but the first
	cores   int // processors that the gauge sees; 0: no gauge
}

// grade is how a policy did.
type grade struct {
	t90       time.Duration // until 90 % of the needed workers were there; negative: never
	peak      int
	steady    float64 // mean workers in the second half of the graded phase
	workerSec float64
	p50, p99  time.Duration // from arrival to handled, of what arrived in the graded phase
	thrash    float64       // workers added and removed per minute in the second half of the graded phase
	goodput   float64       // messages handled per second in that
	shrink    time.Duration // from its end until the workers were gone but for a tenth; negative: never
	lost      int64
	underMin  int
	decisions int
}

// play runs a load in virtual time against a real pool.
func play(t *testing.T, l load, policy func() pool.Policy, seed uint64) (g grade) {
	synctest.Test(t, func(t *testing.T) { g = newPlayer(t, l, policy(), seed).run() })
	return g
}

// order is a message: when it arrived at the broker, and its own luck.
type order struct {
	at   time.Duration
	luck uint64
}

type player struct {
	l      load
	seed   uint64
	p      *pool.Pool[order]
	start  time.Time
	starts []time.Duration // of the phases
	total  time.Duration
	gs, ge time.Duration // the graded phase

	busy    atomic.Int64
	handled atomic.Int64
	half    atomic.Int64 // handled in its second half
	mu      sync.Mutex
	waits   []time.Duration
	lag     []order // arrived, not yet submitted
	sent    int64
	g       grade
}

func newPlayer(t *testing.T, l load, policy pool.Policy, seed uint64) *player {
	y := &player{l: l, start: time.Now(), g: grade{t90: -1, shrink: -1}}
	for _, ph := range l.phases {
		y.starts = append(y.starts, y.total)
		y.total += ph.lasts
	}
	y.gs, y.ge = y.starts[min(1, len(l.phases)-1)], y.total
	if l.graded >= 0 {
		y.gs = y.starts[l.graded]
		y.ge = y.gs + l.phases[l.graded].lasts
	}
	cfg := pool.Config[order]{Min: l.min, Max: l.max, Queue: l.queue, Policy: policy, Do: y.handle}
	cfg.Observe = func(d pool.Decision) {
		y.g.decisions++
		if testing.Verbose() && traced(l.name) {
			o := d.Observation
			t.Logf("%8v %4d -> %4d busy %d backlog %d λ %.0f h %v up %v cpu %.2f: %s", o.Now, d.From, d.Target, o.Busy, o.Backlog, o.Rates.Arrivals, o.Rates.Handler, o.Rates.Proven, o.Pressure.CPU, d.Reason)
		}
	}
	if l.cores > 0 {
		cfg.Gauge = func() pool.Pressure { return pool.Pressure{CPU: min(1, float64(y.busy.Load())/float64(l.cores))} }
	}
	y.p = newPool(t, cfg)
	y.seed = seed
	return y
}

func (y *player) now() time.Duration { return time.Since(y.start) }

func (y *player) handle(_ *pool.Worker[order], o order) {
	busy := int(y.busy.Add(1))
	time.Sleep(y.l.service(busy, y.now(), rand.New(rand.NewPCG(o.luck, 1))))
	y.busy.Add(-1)
	y.handled.Add(1)
	now := y.now()
	if now >= y.gs+(y.ge-y.gs)/2 && now < y.ge {
		y.half.Add(1)
	}
	if o.at >= y.gs && o.at < y.ge {
		y.mu.Lock()
		y.waits = append(y.waits, now-o.at)
		y.mu.Unlock()
	}
}

// run plays broker, dispatcher and grader until the load is over.
func (y *player) run() grade {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	arrived := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() { y.dispatch(ctx, arrived) })
	wg.Go(func() { y.watch(ctx) })
	y.arrive(arrived)
	cancel()
	wg.Wait()
	_, _ = y.p.Drain(context.Background())
	y.g.lost = y.sent - y.handled.Load()
	y.g.goodput = float64(y.half.Load()) / ((y.ge - y.gs) / 2).Seconds()
	if n := len(y.waits); n > 0 {
		slices.Sort(y.waits)
		y.g.p50, y.g.p99 = y.waits[n/2], y.waits[int(0.99*float64(n-1))]
	}
	return y.g
}

// arrive puts what is due into the lag, each millisecond.
func (y *player) arrive(arrived chan<- struct{}) {
	rng := rand.New(rand.NewPCG(7+101*y.seed, 9))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	last, owed, ph := time.Duration(0), 0.0, 0
	for now := last; now < y.total; {
		<-tick.C
		now = y.now()
		for ph+1 < len(y.starts) && now >= y.starts[ph+1] {
			ph++
		}
		owed += y.l.phases[ph].rate * (now - last).Seconds()
		last = now
		n := int(owed)
		if y.l.poisson {
			n, owed = poisson(rng, owed), 0
		} else {
			owed -= float64(n)
		}
		if n == 0 || now >= y.total {
			continue
		}
		y.mu.Lock()
		for range n {
			y.lag = append(y.lag, order{now, rng.Uint64()})
		}
		y.mu.Unlock()
		select {
		case arrived <- struct{}{}:
		default:
		}
	}
}

// dispatch submits the lag in chunks and is held back by the pool's bound.
func (y *player) dispatch(ctx context.Context, arrived <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-arrived:
		}
		for {
			y.mu.Lock()
			n := min(len(y.lag), 64)
			os := y.lag[:n:n]
			y.lag = y.lag[n:]
			y.mu.Unlock()
			if n == 0 {
				break
			}
			taken, err := y.p.SubmitAll(ctx, 0, os)
			y.sent += int64(taken)
			if err != nil {
				return
			}
		}
	}
}

// watch looks at the pool each millisecond.
func (y *player) watch(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	half := y.gs + (y.ge-y.gs)/2
	was, moved, sum, n := 0, 0, 0, 0
	for {
		select {
		case <-ctx.Done():
			y.g.steady = float64(sum) / float64(max(1, n))
			y.g.thrash = float64(moved) / (y.ge - half).Minutes()
			return
		case <-tick.C:
		}
		now, live := y.now(), y.p.Stats().Live
		y.g.workerSec += float64(live) / 1000
		if live < y.l.min {
			y.g.underMin++
		}
		if now >= y.gs && now < y.ge {
			y.g.peak = max(y.g.peak, live)
			if y.g.t90 < 0 && float64(live) >= 0.9*float64(y.l.need) {
				y.g.t90 = now - y.gs
			}
			if now >= half {
				sum, n = sum+live, n+1
				if was > 0 {
					moved += max(live-was, was-live)
				}
				was = live
			}
		}
		if now >= y.ge && y.g.shrink < 0 && float64(live) <= float64(y.l.min)+0.1*float64(y.l.need) {
			y.g.shrink = now - y.ge
		}
	}
}

func poisson(r *rand.Rand, mean float64) int {
	if mean > 50 {
		return int(math.Max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64())))
	}
	limit, k, x := math.Exp(-mean), 0, 1.0
	for {
		if x *= r.Float64(); x <= limit {
			return k
		}
		k++
	}
}
