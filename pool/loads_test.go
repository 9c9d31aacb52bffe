package pool_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const sec = time.Second

func step(s time.Duration, rate float64, lasts, rest time.Duration) []phase {
	return []phase{{s, 0}, {lasts, rate}, {rest, 0}}
}

func square() []phase {
	ps := []phase{{sec, 0}}
	for range 100 {
		ps = append(ps, phase{100 * ms, 20000}, phase{100 * ms, 0})
	}
	return ps
}

// sine begins at a part of its period.
func sine(lasts, period, every time.Duration, part, low, high float64) []phase {
	ps := []phase{{sec, low}}
	for at := time.Duration(0); at < lasts; at += every {
		ps = append(ps, phase{every, (low+high)/2 + (high-low)/2*math.Sin(2*math.Pi*(part+at.Seconds()/period.Seconds()))})
	}
	return ps
}

// turns changes to another rate at random moments.
func turns(lasts, each time.Duration, most float64) []phase {
	r := rand.New(rand.NewPCG(11, 12))
	ps := []phase{{sec, 0}}
	for d := time.Duration(0); d < lasts; {
		p := phase{time.Duration(float64(each) * r.ExpFloat64()).Round(ms), most * r.Float64()}
		d += p.lasts
		ps = append(ps, p)
	}
	return ps
}

// pareto has bursts of Pareto size (alpha 1.3, at least 20, at most 20,000), three a second.
func pareto(lasts time.Duration) []phase {
	r := rand.New(rand.NewPCG(5, 6))
	ps := []phase{{sec, 0}}
	for d := time.Duration(0); d < lasts; {
		gap := time.Duration(float64(333*ms) * r.ExpFloat64()).Round(ms)
		n := min(20000, 20*math.Pow(1-r.Float64(), -1/1.3))
		ps = append(ps, phase{ms, n * 1000}, phase{gap, 50})
		d += gap + ms
	}
	return ps
}

func comb() []phase {
	ps := []phase{{sec, 0}}
	for range 60 {
		ps = append(ps, phase{ms, 100_000}, phase{899 * ms, 1})
	}
	return ps
}

// refuses more than k at once quickly, and the message is tried again with backoff.
func refuses(d time.Duration, k int) func(int, time.Duration, *rand.Rand, int) (time.Duration, time.Duration) {
	return func(busy int, _ time.Duration, r *rand.Rand, try int) (time.Duration, time.Duration) {
		if busy > k {
			return 500 * time.Microsecond, time.Duration(float64(100*ms) * math.Pow(2, float64(min(try, 6))) * (0.5 + r.Float64()))
		}
		return time.Duration(float64(d) * (0.9 + 0.2*r.Float64())), 0
	}
}

// mostly takes d, and refuses a share of the tries by chance, however few run.
func mostly(d time.Duration, share float64) func(int, time.Duration, *rand.Rand, int) (time.Duration, time.Duration) {
	return func(_ int, _ time.Duration, r *rand.Rand, _ int) (time.Duration, time.Duration) {
		if r.Float64() < share {
			return d, sec
		}
		return d, 0
	}
}

// poison: in the second ten seconds but five, half of the messages fail five times.
func poison(_ int, at time.Duration, r *rand.Rand, try int) (time.Duration, time.Duration) {
	if at > 5*sec && at < 15*sec && (try > 0 || r.Float64() < 0.5) && try < 5 {
		return 30 * ms, time.Duration(100<<try) * ms
	}
	return 5 * ms, 0
}

// clean are loads of which more workers always do more; S3, S11 and S12 are not, but saturate a downstream that slows down
// evenly.
func clean() []load {
	return []load{
		{name: "S1 step 20k/s x 5ms", service: constant(5 * ms), need: 100, graded: 1, phases: step(sec, 20000, 10*sec, 60*sec),
			mean: .005},
		{name: "S2 Poisson 20k/s, exponential 5ms", service: exponential(5 * ms), need: 100, poisson: true,
			phases: []phase{{60 * sec, 20000}}, mean: .005},
		{name: "S2b Poisson 200/s, exponential 5ms", service: exponential(5 * ms), need: 1, poisson: true,
			phases: []phase{{60 * sec, 200}}, mean: .005},
		{name: "S3 downstream of 32", service: shared(5*ms, 32, 1), need: 32, graded: 1, phases: step(sec, 20000, 20*sec, 0),
			mean: .005, knee: 32},
		{harms: true, name: "S3b downstream of 32 collapses", service: shared(5*ms, 32, 1.3), need: 32, graded: 1,
			phases: step(sec, 20000, 20*sec, 0), mean: .005, knee: 32},
		{name: "S5 burst, then 200/s", service: constant(5 * ms), need: 100, graded: 1,
			phases: []phase{{sec, 0}, {5 * sec, 20000}, {60 * sec, 200}}, mean: .005},
		{name: "S6 20k/s, 100ms on and off", service: constant(5 * ms), need: 100, graded: -1, phases: square(), mean: .005,
			varies: true},
		{name: "S7 handler turns from 5 to 50ms", service: from(5*sec, constant(5*ms), constant(50*ms)), need: 100, graded: 2,
			phases: []phase{{sec, 0}, {4 * sec, 2000}, {20 * sec, 2000}, {10 * sec, 0}}, ideal: 4*10 + 20*100 + 11},
		{name: "S7c handler turns from 5 to 50ms, CV 3", service: from(5*sec, lognormal(5*ms, 3), lognormal(50*ms, 3)), need: 100,
			graded: 2, poisson: true, phases: []phase{{sec, 0}, {4 * sec, 2000}, {20 * sec, 2000}, {10 * sec, 0}},
			ideal: 4*10 + 20*100 + 11},
		{name: "S8 100us x 15k/s", service: constant(100 * time.Microsecond), need: 2, graded: 1,
			phases: step(sec, 15000, 10*sec, 10*sec), mean: .0001},
		{name: "S9 500ms x 200/s", service: constant(500 * ms), need: 100, graded: 1, phases: step(sec, 200, 20*sec, 60*sec), mean: .5},
		{name: "S10 lognormal 5ms CV 3, 20k/s", service: lognormal(5*ms, 3), need: 100, poisson: true,
			phases: []phase{{60 * sec, 20000}}, mean: .005},
		{name: "S11 downstream of 32, then 128", need: 100, graded: 2, service: from(20*sec, shared(5*ms, 32, 1), shared(5*ms, 128, 1)),
			phases: []phase{{sec, 0}, {19 * sec, 20000}, {30 * sec, 20000}}, ideal: 1 + 19*32 + 30*128},
		{name: "S12 downstream of 32, 50ms", service: shared(50*ms, 32, 1), need: 32, graded: 1, phases: step(sec, 2000, 60*sec, 0),
			mean: .05, knee: 32},
		{name: "H1 step 3k/s exp 20ms", service: exponential(20 * ms), need: 60, graded: 1, poisson: true,
			phases: step(sec, 3000, 10*sec, 20*sec), mean: .02},
		{name: "H2 step 20k/s 5ms, queue 128", service: constant(5 * ms), need: 100, graded: 1, queue: 128,
			phases: step(sec, 20000, 10*sec, 20*sec), mean: .005},
		{name: "H3 step 20k/s 5ms, max 64", service: constant(5 * ms), need: 64, graded: 1, max: 64,
			phases: []phase{{sec, 0}, {10 * sec, 20000}}, mean: .005},
		{name: "H4 random 0-30k/s, 300ms each", service: exponential(5 * ms), need: 75, graded: -1, poisson: true,
			phases: turns(30*sec, 300*ms, 30000), mean: .005, varies: true},
		{harms: true, name: "H5 downstream 20, 12ms, e=1.15", service: shared(12*ms, 20, 1.15), need: 20, graded: 1,
			phases: []phase{{sec, 0}, {30 * sec, 5000}}, mean: .012, knee: 20},
		{name: "H6 sine 1k-20k/s, 10s", service: exponential(5 * ms), need: 52, graded: -1, poisson: true,
			phases: sine(60*sec, 10*sec, 500*ms, 0, 1000, 20000), mean: .005, varies: true},
		{name: "H7 bimodal 95% 1ms 5% 100ms, 10k/s", service: mixed(.05, 100*ms, ms), need: 60, graded: 1, poisson: true,
			phases: step(sec, 10000, 20*sec, 10*sec), mean: .00595},
		{name: "H8 step 200k/s 2ms, 4..1000", service: constant(2 * ms), need: 400, graded: 1, min: 4, max: 1000, queue: 4096,
			phases: step(500*ms, 200000, 3*sec, 10*sec), mean: .002},
		{name: "H9 step 10k/s 10ms, queue 48", service: constant(10 * ms), need: 100, graded: 1, queue: 48,
			phases: step(sec, 10000, 10*sec, 20*sec), mean: .01},
		{name: "H10 step 30k/s exp 1ms, queue 8192", service: exponential(ms), need: 30, graded: 1, queue: 8192, poisson: true,
			phases: step(sec, 30000, 10*sec, 20*sec), mean: .001},
		{harms: true, name: "H11 downstream 64, 3ms e=1.2, queue 64", service: shared(3*ms, 64, 1.2), need: 64, graded: 1, queue: 64,
			phases: []phase{{sec, 0}, {20 * sec, 40000}}, mean: .003, knee: 64},
		{name: "P demo: to 6k/s, in bunches of 30", service: shared(5*ms, 128, 1), need: 30, graded: -1, max: 128, queue: 256,
			phases: bunched(), ideal: 3*1 + 4*5 + 2*1 + 4*30, varies: true},
	}
}

// bunched is the load of `longshore demo` up to its burst: what arrives comes together each 5 ms.
func bunched() []phase {
	var ps []phase
	for _, p := range []phase{{3 * sec, 100}, {4 * sec, 1000}, {2 * sec, 200}, {4 * sec, 6000}} {
		for at := time.Duration(0); at < p.lasts; at += 5 * ms {
			ps = append(ps, phase{ms, 5 * p.rate}, phase{4 * ms, 0})
		}
	}
	return ps
}

// computing: a handler's time stretches as soon as there are more of them than cores.
func computing() (ls []load) {
	for _, cores := range []int{2, 8, 32} {
		for _, seen := range []bool{true, false} {
			l := load{name: fmt.Sprintf("S4 computing 5ms on %d cores", cores), service: shared(5*ms, cores, 1.015), need: cores,
				graded: 1,
				phases: step(sec, 20000, 20*sec, 0), mean: .005, knee: cores}
			if seen {
				l.cores = cores
			} else {
				l.name += ", unseen"
			}
			ls = append(ls, l)
		}
	}
	return ls
}

// scattered are saturated downstreams whose handler times scatter more and more, and backlogs of work that does not crowd.
func scattered() []load {
	sat := []phase{{sec, 0}, {60 * sec, 8000}}
	over := []phase{{sec, 0}, {30 * sec, 60000}}
	return []load{
		{name: "R0 knee 32, 5ms +-10%", need: 32, graded: 1, service: shared(5*ms, 32, 1), phases: sat, mean: .005, knee: 32},
		{name: "R1 knee 32, 5ms exponential", need: 32, graded: 1, service: noisy(5*ms, 32, 1, 1), phases: sat, mean: .005, knee: 32},
		{name: "R15 knee 32, 5ms CV 1.5", need: 32, graded: 1, service: noisy(5*ms, 32, 1, 1.5), phases: sat, mean: .005, knee: 32},
		{name: "R2 knee 32, 5ms CV 2", need: 32, graded: 1, service: noisy(5*ms, 32, 1, 2), phases: sat, mean: .005, knee: 32},
		{name: "R3 knee 32, 5ms CV 3", need: 32, graded: 1, service: noisy(5*ms, 32, 1, 3), phases: sat, mean: .005, knee: 32},
		{name: "R4 no knee, CV 1, 60k/s", need: 256, graded: 1, service: lognormal(5*ms, 1), phases: over, mean: .005},
		{name: "R5 no knee, CV 3, 60k/s", need: 256, graded: 1, service: lognormal(5*ms, 3), phases: over, mean: .005},
		{name: "R6 bimodal 95% 1ms 5% 100ms, max 64", need: 64, graded: 1, max: 64, service: mixed(.05, 100*ms, ms),
			phases: []phase{{sec, 0}, {60 * sec, 15000}}, mean: .00595},
		{name: "R7 bimodal 99% 2ms 1% 1s, max 64", need: 64, graded: 1, max: 64, service: mixed(.01, sec, 2*ms),
			phases: []phase{{sec, 0}, {60 * sec, 10000}}, mean: .01198},
		{name: "R8 knee 16, CV 2, 50ms", need: 16, graded: 1, service: noisy(50*ms, 16, 1, 2),
			phases: []phase{{sec, 0}, {120 * sec, 400}}, mean: .05, knee: 16},
	}
}

// hostile are the bad days: a downstream that collapses, hangs, or refuses, and handlers of half a minute.
func hostile() []load {
	ill := []phase{{sec, 0}, {5 * sec, 5000}, {20 * sec, 5000}, {40 * sec, 5000}}
	quick := constant(2 * ms)
	return []load{
		{name: "A1 2->200ms for 20s, latency only", need: 10, graded: 2, service: between(6*sec, 26*sec, constant(200*ms), quick),
			phases: ill,
			ideal:  25*10 + 20*256 + 21*256 + 20*10, varies: true},
		{name: "A2 2->200ms for 20s, capacity 10", need: 10, graded: 2, service: between(6*sec, 26*sec, shared(200*ms, 10, 1), quick),
			phases: ill,
			ideal:  5*10 + 20*10 + 1*256 + 39*10},
		{harms: true, name: "A3 as A2, collapses (e=1.5)", need: 10, graded: 2,
			service: between(6*sec, 26*sec, shared(200*ms, 10, 1.5), quick), phases: ill,
			ideal: 5*10 + 20*10 + 1*256 + 39*10},
		{name: "B diurnal 20-4020/s, exp 25ms", need: 100, graded: -1, poisson: true, service: exponential(25 * ms),
			phases: sine(300*sec, 150*sec, sec, 0.75, 20, 4020), mean: .025, varies: true},
		{name: "C1 bimodal 95% 1ms 5% 2s, 1k/s", need: 101, graded: 1, poisson: true, service: mixed(.05, 2*sec, ms),
			phases: step(sec, 1000, 30*sec, 20*sec), mean: .10095},
		{name: "C2 bimodal 99.9% 1ms .1% 2s, 20k/s", need: 60, graded: 1, poisson: true, service: mixed(.001, 2*sec, ms),
			phases: step(sec, 20000, 20*sec, 20*sec), mean: .003},
		{name: "D poison 50% for 10s, 5 tries, 1k/s", need: 100, graded: 1, poisson: true, answer: poison,
			phases: []phase{{sec, 0}, {40 * sec, 1000}}, ideal: 41 * 5, varies: true},
		{harms: true, name: "E1 knee 24, 8ms, e=2, 20k/s", need: 24, graded: 1, service: shared(8*ms, 24, 2),
			phases: []phase{{sec, 0}, {30 * sec, 20000}}, mean: .008, knee: 24},
		{harms: true, name: "E2 cliff: beyond 40 a call takes 1s", need: 40, graded: 1, service: cliff(10*ms, 40, sec),
			phases: []phase{{sec, 0}, {30 * sec, 10000}}, mean: .01, knee: 40},
		{harms: true, name: "E3 metastable: beyond 40 10 x slower", need: 40, graded: 1, fresh: metastable(10*ms, 40, 10),
			phases: []phase{{sec, 0}, {30 * sec, 3000}}, mean: .01, knee: 40},
		{name: "E4 knee 32, CV 3, then 128 at 20s", need: 100, graded: 2,
			service: from(20*sec, noisy(5*ms, 32, 1, 3), noisy(5*ms, 128, 1, 3)),
			phases:  []phase{{sec, 0}, {19 * sec, 20000}, {30 * sec, 20000}}, ideal: 1 + 19*32 + 30*128},
		{name: "E5 refuses beyond 32, retries", need: 32, graded: 1, answer: refuses(5*ms, 32),
			phases: []phase{{sec, 0}, {4 * sec, 10000}}, mean: .005, knee: 32},
		{name: "E5t as E5, and the handlers say so", need: 32, graded: 1, answer: refuses(5*ms, 32), told: true,
			phases: []phase{{sec, 0}, {4 * sec, 10000}}, mean: .005, knee: 32},
		{name: "T1 one in a hundred refused by chance, 1k/s x 50ms", need: 51, graded: 1, answer: mostly(50*ms, .01), told: true,
			phases: step(sec, 1000, 30*sec, 20*sec), mean: .0505},
		{name: "T5 one in twenty refused by chance, 1k/s x 50ms", need: 53, graded: 1, answer: mostly(50*ms, .05), told: true,
			phases: step(sec, 1000, 30*sec, 20*sec), mean: .0526},
		{name: "T20 one in five refused by chance, 1k/s x 50ms", need: 63, graded: 1, answer: mostly(50*ms, .2), told: true,
			phases: step(sec, 1000, 30*sec, 20*sec), mean: .0625},
		{name: "E6 refuses beyond 32, needs 20", need: 20, graded: 1, answer: refuses(5*ms, 32), poisson: true,
			phases: []phase{{sec, 0}, {6 * sec, 4000}}, mean: .005, knee: 32},
		{name: "F1 a million at the start, 2ms", need: 256, graded: -1, service: constant(2 * ms),
			phases: []phase{{ms, 0}, {ms, 1e9}, {15 * sec, 0}}, ideal: 2007, varies: true},
		{harms: true, name: "F2 10k/s, downstream 48 4ms e1.2", need: 48, graded: 0, service: shared(4*ms, 48, 1.2),
			phases: []phase{{20 * sec, 10000}}, mean: .004, knee: 48},
		{name: "G Pareto bursts, 5ms", need: 20, graded: -1, service: exponential(5 * ms), phases: pareto(60 * sec), mean: .005,
			varies: true},
		{name: "I 100 at once each 900ms, 5ms", need: 10, graded: -1, service: constant(5 * ms), phases: comb(), ideal: 54 * .1 * 10,
			varies: true},
		{name: "J 30s handlers, 5/s", need: 150, graded: 1, service: constant(30 * sec), phases: step(sec, 5, 120*sec, 60*sec),
			mean: 30},
		{name: "K 10us handlers, 100k/s", need: 1, graded: 1, service: constant(10 * time.Microsecond),
			phases: step(sec, 100000, 5*sec, 5*sec), mean: 1e-5},
		{name: "L Poisson 50/s, exponential 100ms", need: 5, graded: 0, poisson: true, service: exponential(100 * ms),
			phases: []phase{{120 * sec, 50}}, mean: .1},
		{name: "M down for 30s (calls hang 10s), 1k/s", need: 5, graded: 2,
			service: between(5*sec, 35*sec, constant(10*sec), constant(5*ms)),
			phases: []phase{{sec, 0}, {4 * sec, 1000}, {30 * sec, 1000},
				{40 * sec, 1000}}, ideal: 5*5 + 30*256 + 10*256 + 30*5, varies: true},
		{name: "U1 90 % of 16, exponential 1s", max: 16, need: 15, graded: 0, poisson: true, service: exponential(sec),
			phases: []phase{{200 * sec, 14.4}}, mean: 1},
		{name: "U2 90 % of 16, exponential 100ms", max: 16, need: 15, graded: 0, poisson: true, service: exponential(100 * ms),
			phases: []phase{{100 * sec, 144}}, mean: .1},
		{name: "U3 95 % of 64, exponential 1s", max: 64, need: 62, graded: 0, poisson: true, service: exponential(sec),
			phases: []phase{{200 * sec, 60.8}}, mean: 1},
		{name: "U4 90 % of 16, CV 3, 100ms", max: 16, need: 15, graded: 0, poisson: true, service: lognormal(100*ms, 3),
			phases: []phase{{100 * sec, 144}}, mean: .1},
		{name: "N steady 300/s, 1% 1s, .05% 25s", need: 8, graded: 0, poisson: true, phases: []phase{{190 * sec, 300}}, mean: .0265,
			service: func(busy int, at time.Duration, r *rand.Rand) time.Duration {
				switch x := r.Float64(); {
				case x < .0005:
					return 25 * sec
				case x < .0105:
					return sec
				}
				return exponential(4*ms)(busy, at, r)
			}},
	}
}

// slow are handlers of seconds: what few of them do in the time that is looked at proves next to nothing.
func slow() []load {
	return []load{
		{name: "Q1 exponential 2s, 60/s", need: 120, graded: 1, service: exponential(2 * sec), phases: step(sec, 60, 60*sec, 30*sec),
			mean: 2},
		{name: "Q2 exponential 5s, 10/s", need: 50, graded: 1, service: exponential(5 * sec), phases: step(sec, 10, 90*sec, 30*sec),
			mean: 5},
		{name: "Q3 exponential 1s, then 10s, 15/s", need: 150, graded: 2,
			service: from(40*sec, exponential(sec), exponential(10*sec)),
			phases:  []phase{{sec, 0}, {39 * sec, 15}, {80 * sec, 15}}, ideal: 1 + 39*15 + 80*150},
	}
}

// disturbed are loads on a machine or a downstream that others use, too: what comes out changes by multiples with the workers
// the same.
func disturbed() []load {
	over := []phase{{sec, 0}, {40 * sec, 20000}}
	return []load{
		{name: "O1 knee 32, 5ms, others", need: 32, graded: 1, fresh: outside(shared(5*ms, 32, 1)), phases: over, mean: .005, knee: 32},
		{name: "O2 knee 32, 5ms, e=1.5, others", harms: true, need: 32, graded: 1, fresh: outside(shared(5*ms, 32, 1.5)), phases: over,
			mean: .005, knee: 32},
		{name: "O3 no knee, 5ms, others, max 64", need: 64, graded: 1, max: 64, fresh: outside(exponential(5 * ms)), phases: over,
			mean: .005},
		{name: "O4 cliff at 40, 10ms, others", harms: true, need: 40, graded: 1, fresh: outside(cliff(10*ms, 40, sec)), phases: over,
			mean: .01, knee: 40},
		{name: "O5 no knee, 10ms +-5%, others", need: 205, graded: 1, queue: 256, fresh: outside(lognormal(10*ms, 0.05)),
			phases: []phase{{2 * sec, 2000}, {20 * sec, 20500}}, mean: .01},
	}
}

// loads are all of them.
func loads() (all []load) {
	for _, ls := range [][]load{clean(), computing(), scattered(), hostile(), slow(), disturbed()} {
		all = append(all, ls...)
	}
	for i := range all {
		l := &all[i]
		l.min, l.max, l.queue = cmp.Or(l.min, 1), cmp.Or(l.max, 256), cmp.Or(l.queue, 1024)
	}
	return all
}
