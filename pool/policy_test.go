package pool

import (
	"testing"
	"time"
)

// world changes the next Observation, knowing the size decided so far.
type world func(i int, o *Observation)

// feed gives a policy an observation every 5 ms and returns the last decision and the largest target.
func feed(t *testing.T, p Policy, n int, o Observation, w world) (d Decision, peak int) {
	t.Helper()
	var e estimate
	for i := range n {
		o.Now += tick
		w(i, &o)
		o.Rates = e.update(&o)
		d = p.Step(o)
		if d.Target > o.Max && o.Workers <= o.Max {
			t.Fatalf("step %d: %d workers of at most %d: %s", i, d.Target, o.Max, d.Reason)
		}
		peak, o.Workers = max(peak, d.Target), max(o.Min, d.Target)
	}
	return d, peak
}

// full: all workers run; in 5 ms each finishes as many handlers of time h as fit.
func full(o *Observation, h time.Duration) {
	n := int64(float64(o.Workers) * float64(tick) / float64(h))
	o.Busy, o.InHand, o.Idle, o.IdleLong = o.Workers, o.Workers, 0, 0
	o.Done += n
	o.In += n
	o.Work += time.Duration(n) * h
	o.Squares += float64(n) * h.Seconds() * h.Seconds()
	o.Oldest, o.Age = h, time.Duration(o.Workers)*h/2
}

// scattered: exponential times, which the workers there are can do; from half a second on so much waits.
func scattered(waits int) world {
	return func(i int, o *Observation) {
		before := o.Squares
		full(o, 5*time.Millisecond)
		o.Squares += o.Squares - before
		if i > 100 {
			o.Backlog = waits
		}
	}
}

// hang: all workers run and nothing finishes.
func hang(o *Observation) {
	o.Busy, o.InHand, o.Idle, o.IdleLong = o.Workers, o.Workers, 0, 0
	o.Oldest += tick
	o.Age += time.Duration(o.Workers) * tick
}

// TestReportStatusDecides is the table of decisions.
func TestReportStatusDecides(t *testing.T) {
	base := Observation{Workers: 1, Min: 1, Max: 256, IdleTimeout: time.Second}
	for _, c := range []struct {
		name   string
		steps  int
		start  func(o *Observation)
		world  world
		want   func(d Decision, peak int) bool
		reason Reason
	}{
		{"idle at Min stays, and lets the manager sleep", 1000, nil, func(_ int, o *Observation) { o.Idle, o.IdleLong = 1, 1 },
			func(d Decision, peak int) bool { return peak == 1 && d.Next == 0 }, ReasonStaff},
		{"at Max with work waiting stays", 100, func(o *Observation) { o.Min, o.Max, o.Workers = 4, 4, 4 },
			func(_ int, o *Observation) { full(o, 5*time.Millisecond); o.Backlog = 1000 },
			func(d Decision, peak int) bool { return d.Target == 4 && peak == 4 && d.Next > 0 }, ReasonLimit},
		{"work waits, nothing is known: grows", 1, nil, func(_ int, o *Observation) { o.Busy, o.Backlog = 1, 5 },
			func(d Decision, _ int) bool { return d.Target == 2 }, ReasonGrow},
		{"an idle worker: no growth whatever the backlog", 100, nil, func(_ int, o *Observation) { o.Idle, o.Backlog = 1, 5 },
			func(_ Decision, peak int) bool { return peak == 1 }, ""},
		{"a backlog that is gone in 10 ms is none", 400, func(o *Observation) { o.Workers = 10 }, func(i int, o *Observation) {
			if full(o, 5*time.Millisecond); i > 10 {
				o.Backlog = 10
			}
		}, func(_ Decision, peak int) bool { return peak == 10 }, ReasonStaff},
		{"two of which each has some waiting for a moment: none more", 400, func(o *Observation) { o.Workers = 2 }, scattered(7),
			func(_ Decision, peak int) bool { return peak == 2 }, ReasonStaff},
		{"two for which more waits: as many as do it, and none to spare", 102, func(o *Observation) { o.Workers = 2 }, scattered(14),
			func(d Decision, _ int) bool { return d.Target == 3 }, ReasonStaff},
		{"a million at start, and workers pay: Max", 400, nil,
			func(_ int, o *Observation) { full(o, 5*time.Millisecond); o.Backlog, o.Full = 1e6, true },
			func(_ Decision, peak int) bool { return peak == 256 }, ""},
		{"nothing ever finishes: not Max", 2000, nil, func(_ int, o *Observation) { hang(o); o.Backlog, o.Full = 1024, true },
			func(_ Decision, peak int) bool { return peak <= 136 }, ReasonStuck},
		{"stops at 10 workers: not Max", 2400, func(o *Observation) { o.Workers = 10 }, func(i int, o *Observation) {
			if i < 400 {
				full(o, 5*time.Millisecond)
				o.Busy, o.Idle = 9, 1
				return
			}
			hang(o)
			o.In += 10
			o.Backlog = min(1024, o.Backlog+10)
			o.Full = o.Backlog == 1024
		}, func(_ Decision, peak int) bool { return peak <= 136 }, ReasonStuck},
		{"those who asked to go do, those in use stay", 200, func(o *Observation) { o.Workers = 100 }, func(_ int, o *Observation) {
			full(o, 5*time.Millisecond)
			o.Busy, o.Idle, o.IdleLong = 20, o.Workers-20, max(0, o.Workers-30)
			o.Work -= time.Duration(o.Workers-20) * 5 * time.Millisecond
			o.Done -= int64(o.Workers - 20)
			o.Age = 20 * 2500 * time.Microsecond
		}, func(d Decision, _ int) bool { return d.Target == 30 }, ""},
		{"growth that brings nothing: plateau", 400, nil, func(_ int, o *Observation) {
			full(o, 5*time.Millisecond*time.Duration(max(32, o.Workers))/32)
			o.Backlog, o.Full = 1024, true
		}, func(d Decision, peak int) bool { return d.Target <= 48 && peak <= 128 }, ""},
		{"handlers turn slow at a steady size: that is not ours, grow", 60, func(o *Observation) { o.Workers = 16 },
			func(i int, o *Observation) {
				if i < 40 {
					full(o, 5*time.Millisecond)
					o.Busy, o.Idle, o.In = 15, 1, o.Done
					return
				}
				full(o, 50*time.Millisecond)
				o.In += 14
				o.Backlog += 8
			}, func(_ Decision, peak int) bool { return peak >= 64 }, ""},
		{"growth that does harm: back, and barred for long", 4000, nil, func(_ int, o *Observation) {
			crowd := float64(max(24, o.Workers)) / 24
			full(o, time.Duration(8e6*crowd*crowd))
			o.Backlog, o.Full = 1024, true
		}, func(d Decision, peak int) bool { return d.Target >= 20 && d.Target <= 28 && peak <= 64 }, ""},
		{"the downstream refuses: an eighth less", 100, func(o *Observation) { o.Workers = 64 }, func(i int, o *Observation) {
			if full(o, 5*time.Millisecond); i == 99 {
				o.Refused += 32
			}
			o.Busy, o.Idle = 60, o.Workers-60
		}, func(d Decision, _ int) bool { return d.Target == 56 && d.Force }, ReasonLimit},
		{"the downstream refuses one in 64: it is not full", 1000, func(o *Observation) { o.Workers = 64 },
			func(_ int, o *Observation) {
				full(o, 5*time.Millisecond)
				o.Refused++
				o.Busy, o.Idle = 60, o.Workers-60
			}, func(d Decision, peak int) bool { return d.Target == 64 && peak == 64 }, ""},
		{"it refuses half, with fewer workers, too: less hurts", 1000, func(o *Observation) { o.Workers, o.Max = 64, 64 },
			func(_ int, o *Observation) {
				full(o, 5*time.Millisecond)
				o.Refused += int64(o.Workers / 2)
				o.Backlog, o.Full = 1024, true
			}, func(d Decision, _ int) bool { return d.Target == 64 }, ""},
		{"slow work waits at the broker: grows before the queue is full", 600, func(o *Observation) { o.Workers, o.Max = 4, 64 },
			func(i int, o *Observation) {
				full(o, 5*time.Millisecond)
				if o.Busy, o.Idle = 3, o.Workers-3; i > 100 {
					full(o, time.Second)
					o.Done, o.Oldest, o.Backlog, o.Waiting = o.Done+int64(i%50/49*o.Workers), 500*time.Millisecond, 8, 5000
				}
			}, func(d Decision, _ int) bool { return d.Target >= 32 }, ""},
		{"quick work waits at the broker, and next to none of it here: the source is the limit", 600, nil,
			func(_ int, o *Observation) {
				o.Busy, o.InHand, o.Idle, o.IdleLong, o.Backlog, o.Waiting = o.Workers, 64*o.Workers, 0, 0, 192, 20_000_000
				o.Done, o.In, o.Work = o.Done+20_000, o.In+20_000, o.Work+20_000*60
				o.Oldest, o.Age = 4*time.Microsecond, time.Duration(o.Workers)*2*time.Microsecond
			}, func(_ Decision, peak int) bool { return peak <= 2 }, ""},
		{"processors full: no more, but a trial of less", 400, func(o *Observation) { o.Workers = 8 }, func(_ int, o *Observation) {
			full(o, 5*time.Millisecond*time.Duration(max(2, o.Workers))/2)
			o.Backlog, o.Full, o.Pressure.CPU = 1024, true, min(1, float64(o.Workers)/2)
		}, func(d Decision, peak int) bool { return peak <= 12 && d.Target <= 4 }, ""},
		{"processors full below Max: that is why there are no more", 10, func(o *Observation) { o.Workers, o.Max = 8, 64 },
			func(_ int, o *Observation) {
				full(o, 10*time.Millisecond)
				o.Backlog, o.Full, o.Pressure.CPU = 1024, true, 1
			}, func(_ Decision, peak int) bool { return peak == 8 }, ReasonCPU},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := base
			if c.start != nil {
				c.start(&o)
			}
			d, peak := feed(t, ReportStatus(), c.steps, o, c.world)
			if !c.want(d, peak) || c.reason != "" && d.Reason != c.reason {
				t.Errorf("target %d, peak %d, next %v, reason %q", d.Target, peak, d.Next, d.Why())
			}
		})
	}
}

// TestBunchesAreNoRise: 30 messages come together each 5 ms. A look that follows another soon, with a bunch in between, sees
// twice as many a second; were that believed, a burst had a third more workers than it needs.
func TestBunchesAreNoRise(t *testing.T) {
	var e estimate
	var o Observation
	most := 0.0
	for i := range 400 {
		after := tick
		switch i % 20 {
		case 10:
			after = tick / 2
		case 11:
			after = tick * 3 / 2
		}
		o.Now += after
		o.In += 30
		most = max(most, e.update(&o).Rising)
	}
	if most < 5900 || most > 6350 {
		t.Errorf("%.0f a second, should be 6,000", most)
	}
}

// TestOtherPoliciesDecide has one row for each rule of the others.
func TestOtherPoliciesDecide(t *testing.T) {
	o := Observation{Now: time.Minute, Workers: 10, Min: 1, Max: 20, Busy: 10, Backlog: 100, IdleTimeout: time.Second, Fill: 0.5}
	with := func(f func(o *Observation)) Observation { x := o; f(&x); return x }
	idle := func(o *Observation) { o.Busy, o.Backlog, o.Idle = 6, 0, 4 }
	slow := &aimd{cfg: AIMDConfig{Slow: time.Millisecond}.withDefaults()}
	classicNow := func(c ClassicConfig, quiet time.Duration) Policy {
		p := Classic(c).(*classic)
		p.started, p.quiet = true, o.Now-quiet
		return p
	}
	cooling := &threshold{cfg: ThresholdConfig{}.withDefaults(), changed: true, at: o.Now - 900*time.Millisecond}
	for _, c := range []struct {
		name   string
		policy Policy
		o      Observation
		target int
		next   time.Duration // -1: any
	}{
		{"fixed keeps Max", Fixed(), o, 20, 0},
		{"classic: not yet", classicNow(ClassicConfig{}, 4*time.Second), o, 10, time.Second},
		{"classic: one more after grow_after", classicNow(ClassicConfig{}, 5*time.Second), o, 11, 5 * time.Second},
		{"classic: an idle report in between", classicNow(ClassicConfig{}, 5*time.Second), with(func(o *Observation) { o.Reports = 1 }),
			10, 5 * time.Second},
		{"classic: at Max", classicNow(ClassicConfig{}, 5*time.Second), with(func(o *Observation) { o.Max = 10 }), 10, -1},
		{"classic: one less after three idle timeouts", classicNow(ClassicConfig{}, 0),
			with(func(o *Observation) { idle(o); o.IdleLong, o.LongestIdle = 1, 3*time.Second }), 9, tick},
		{"classic: two are not enough", classicNow(ClassicConfig{}, 0),
			with(func(o *Observation) { idle(o); o.IdleLong, o.LongestIdle = 1, 2*time.Second }), 10, time.Second},
		{"classic: at most two sleep", classicNow(ClassicConfig{MaxSleeping: 2}, 0),
			with(func(o *Observation) { idle(o); o.IdleLong, o.LongestIdle = 3, time.Second }), 9, tick},
		{"threshold: normal", QueueThreshold(ThresholdConfig{}), o, 10, time.Second},
		{"threshold: busy adds a batch", QueueThreshold(ThresholdConfig{Batch: 4}), with(func(o *Observation) { o.Fill = 0.75 }), 14,
			time.Second},
		{"threshold: 200 jobs for 2 workers are busy, in a queue a fifth full", QueueThreshold(ThresholdConfig{}),
			with(func(o *Observation) { o.Workers, o.Backlog, o.Fill = 2, 200, 0.2 }), 3, time.Second},
		{"threshold: 200 jobs for 20 are not", QueueThreshold(ThresholdConfig{}),
			with(func(o *Observation) { o.Workers, o.Max, o.Backlog = 20, 40, 200 }), 20, time.Second},
		{"threshold: busy, up to Max", QueueThreshold(ThresholdConfig{Batch: 40}), with(func(o *Observation) { o.Fill = 0.75 }), 20,
			time.Second},
		{"threshold: idle removes a batch of the idle", QueueThreshold(ThresholdConfig{Batch: 8}),
			with(func(o *Observation) { idle(o); o.Fill = 0.1 }), 6, time.Second},
		{"threshold: cools down", cooling, with(func(o *Observation) { o.Fill = 1 }), 10, 100 * time.Millisecond},
		{"aimd: adds", AIMD(AIMDConfig{Add: 3}), o, 13, 100 * time.Millisecond},
		{"aimd: keeps three quarters when slow", slow, with(func(o *Observation) { o.Rates.Handler = time.Second }), 7,
			100 * time.Millisecond},
		{"aimd: lets the idle go", AIMD(AIMDConfig{}), with(func(o *Observation) { idle(o); o.IdleLong = 3 }), 7,
			100 * time.Millisecond},
		{"aimd: nothing to do", AIMD(AIMDConfig{}), with(func(o *Observation) { o.Busy, o.Backlog, o.Idle = 0, 0, 10 }), 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := c.policy.Step(c.o); d.Target != c.target || d.Reason == "" || c.next >= 0 && d.Next != c.next {
				t.Errorf("target %d, next %v, reason %q; want %d, %v", d.Target, d.Next, d.Reason, c.target, c.next)
			}
		})
	}
}

// TestGuardKeepsWithinMemoryAndProcessors is the table of what is left of a decision.
func TestGuardKeepsWithinMemoryAndProcessors(t *testing.T) {
	at := func(now time.Duration, memory, cpu float64) Observation {
		return Observation{Now: now, Workers: 40, Min: 35, Max: 100, Pressure: Pressure{Memory: memory, CPU: cpu}}
	}
	for _, c := range []struct {
		name   string
		before []Observation
		o      Observation
		want   int // of 80
	}{
		{"all is well", nil, at(time.Minute, 0.4, 0.5), 80},
		{"80 workers would need more than there is", nil, at(time.Minute, 0.5, 0.5), 72},
		{"memory nearly full: one more", nil, at(time.Minute, 0.89, 0), 41},
		{"and not again before it could show", []Observation{at(time.Minute, 0.89, 0)}, at(time.Minute+100*time.Millisecond, 0.89, 0),
			40},
		{"unknown is not full", nil, at(time.Minute, 0, 0), 80},
		{"memory full: no more", nil, at(time.Minute, 0.9, 0), 40},
		{"memory over: a quarter less, but not under Min", nil, at(time.Minute, 0.95, 0), 35},
		{"and not again before a collection", []Observation{at(time.Minute, 0.95, 0)}, at(time.Minute+100*time.Millisecond, 0.97, 0),
			40},
		{"memory was full a second ago", []Observation{at(time.Minute, 0.9, 0)}, at(time.Minute+time.Second, 0.5, 0), 40},
		{"and is long over", []Observation{at(time.Minute, 0.9, 0)}, at(time.Minute+3*time.Second, 0.4, 0), 80},
		{"processors full: no more", nil, at(time.Minute, 0, 0.95), 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g guard
			for _, o := range c.before {
				g.limit(Decision{Target: 80, Observation: o})
			}
			if d := g.limit(Decision{Target: 80, Reason: "double", Observation: c.o}); d.Target != c.want {
				t.Errorf("%d workers, want %d: %s", d.Target, c.want, d.Reason)
			}
		})
	}
}
