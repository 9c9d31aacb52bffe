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
	service  service
	// fresh, instead of service, makes a downstream with a memory, for each play its own.
	fresh func() service
	// answer, instead of service, says how long a try takes, and after which time the message is to be tried again, for it was
	// refused; 0: it was not. With told the handler says so to its worker.
	answer func(busy int, at time.Duration, r *rand.Rand, try int) (d, again time.Duration)
	told   bool
	need   int // workers that the graded phase needs
	graded int // index of it; -1: all but the first
	cores  int // processors that the gauge sees; 0: no gauge

	mean   float64 // mean handler time when not crowded, seconds, for the oracle
	knee   int     // more workers bring nothing; 0: they always do
	ideal  float64 // the oracle's worker-seconds, where mean and knee do not tell
	varies bool    // the need changes within the graded phase
	harms  bool    // more workers than the knee bring less
}

// oracle is the worker-seconds of who knows the load and has as many workers at each moment as it needs on average.
func (l *load) oracle() float64 {
	if l.ideal > 0 {
		return l.ideal
	}
	ws := 0.0
	for _, ph := range l.phases {
		n := ph.rate * l.mean
		if l.knee > 0 {
			n = min(n, float64(l.knee))
		}
		ws += max(float64(l.min), min(float64(l.max), n)) * ph.lasts.Seconds()
	}
	return ws
}

// grade is how a policy did.
type grade struct {
	t90       time.Duration // until 90 % of the needed workers were there; negative: never
	peak      int
	steady    float64 // mean workers in the second half of the graded phase
	workerSec float64
	p50, p99  time.Duration // from arrival to handled, of what arrived in the graded phase
	thrash    float64       // workers added and removed per minute in the second half of the graded phase
	reversals float64       // changes of direction per minute in that
	goodput   float64       // messages handled per second in that
	starved   time.Duration // longest with less than half of the need while work waited, in the graded phase
	bloated   time.Duration // longest with more than three times the need, in the graded phase
	tries     float64       // handler runs for each message handled
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
	try  int
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
	runs    atomic.Int64
	parked  atomic.Int64 // wait to be tried again
	handled atomic.Int64
	half    atomic.Int64 // handled in its second half
	mu      sync.Mutex
	waits   []time.Duration
	lag     []order // arrived, not yet submitted
	sent    int64
	moved   bool // a decision was counted, and it was one up
	up      bool
	g       grade
}

func newPlayer(t *testing.T, l load, policy pool.Policy, seed uint64) *player {
	y := &player{l: l, start: time.Now(), g: grade{t90: -1, shrink: -1}}
	if l.fresh != nil {
		y.l.service = l.fresh()
	}
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
		y.count(d)
		if testing.Verbose() && traced(l.name) {
			o := d.Observation
			t.Logf("%8v %4d -> %4d busy %d backlog %d λ %.0f h %v up %v cpu %.2f: %s", o.Now, d.From, d.Target, o.Busy, o.Backlog,
				o.Rates.Arrivals, o.Rates.Handler, o.Rates.Proven, o.Pressure.CPU, d.Why())
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

// count takes a decision into the grade. Called by the manager.
func (y *player) count(d pool.Decision) {
	y.g.decisions++
	half := (y.ge - y.gs) / 2
	if now := d.Observation.Now; now < y.gs+half || now >= y.ge {
		return
	}
	up := d.Target > d.From
	if y.moved && up != y.up {
		y.g.reversals += 1 / half.Minutes()
	}
	y.moved, y.up = true, up
}

func (y *player) handle(w *pool.Worker[order], o order) {
	busy := int(y.busy.Add(1))
	r := rand.New(rand.NewPCG(o.luck, uint64(1+o.try)))
	var d, again time.Duration
	if y.l.answer != nil {
		d, again = y.l.answer(busy, y.now(), r, o.try)
	} else {
		d = y.l.service(busy, y.now(), r)
	}
	time.Sleep(d)
	y.busy.Add(-1)
	y.runs.Add(1)
	if again > 0 {
		if y.l.told {
			w.Refused(1)
		}
		o.try++
		y.parked.Add(1)
		time.AfterFunc(again, func() { y.p.Requeue(0, o); y.parked.Add(-1) })
		return
	}
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
	for y.parked.Load() > 0 {
		time.Sleep(100 * ms)
	}
	_, _ = y.p.Drain(context.Background())
	for _, o := range y.lag { // never begun: at least that long
		if o.at >= y.gs && o.at < y.ge {
			y.waits = append(y.waits, y.total-o.at)
		}
	}
	y.g.tries = float64(y.runs.Load()) / float64(max(1, y.handled.Load()))
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
			y.lag = append(y.lag, order{at: now, luck: rng.Uint64()})
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
	fewAt, manyAt := y.gs, y.gs // when there was last enough, and not too much
	for {
		select {
		case <-ctx.Done():
			y.g.steady = float64(sum) / float64(max(1, n))
			y.g.thrash = float64(moved) / (y.ge - half).Minutes()
			return
		case <-tick.C:
		}
		now, stats := y.now(), y.p.Stats()
		live := stats.Live
		y.g.workerSec += float64(live) / 1000
		if live < y.l.min {
			y.g.underMin++
		}
		if now >= y.gs && now < y.ge {
			y.g.peak = max(y.g.peak, live)
			if 2*live >= min(y.l.need, y.l.max) || stats.Backlog == 0 {
				fewAt = now
			}
			if live <= 3*y.l.need {
				manyAt = now
			}
			y.g.starved, y.g.bloated = max(y.g.starved, now-fewAt), max(y.g.bloated, now-manyAt)
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
