package pool

import (
	"math"
	"testing"
	"time"
)

// TestCliffIsLeftBeforeCallsEnd: beyond 40 at once each call takes a second. What was begun before a growth still ends, then
// nothing does. That is proof enough: the calls of a second are not waited for, and what did harm once is not tried again soon.
func TestCliffIsLeftBeforeCallsEnd(t *testing.T) {
	since, longest, times := 0, 0, 0 // steps beyond the cliff, and how often it went there
	_, peak := feed(t, ReportStatus(), 4000, Observation{Workers: 1, Min: 1, Max: 256, Backlog: 1024, Full: true},
		func(_ int, o *Observation) {
			o.Backlog, o.Full = 1024, true
			switch {
			case o.Workers <= 40:
				since = 0
				full(o, 10*time.Millisecond)
				return
			case since == 0:
				times++
				over := o.Workers
				o.Workers = 32 // of these
				full(o, 10*time.Millisecond)
				o.Workers, o.Oldest = over, tick
				o.Busy, o.InHand = over, over
			default:
				hang(o)
			}
			since++
			longest = max(longest, since)
		})
	if peak <= 40 || longest > 40 || times > 4 {
		t.Errorf("peak %d, %d times over the cliff in 20 s, for %v at most; want at most 4 times, for 200 ms", peak, times,
			time.Duration(longest)*tick)
	}
}

// TestStartAndCutHideOnTheirSide: where times scatter a young size looks too good and a cut too bad, and each is doubted on that
// side alone; where all take the same neither is.
func TestStartAndCutHideOnTheirSide(t *testing.T) {
	for _, c := range []struct {
		name      string
		cv2, rate float64
		before    int
		low, high bool // it may be as low, or as high, as the yardstick
	}{
		{"equal times, more comes out", 0, 1500, 10, false, true},
		{"equal times, less comes out", 0, 700, 40, true, false},
		{"scattered, after a start more", 25, 1500, 10, true, true},
		{"scattered, after a start less", 25, 300, 10, true, false},
		{"scattered, after a cut less", 25, 700, 40, true, true},
		{"scattered, after a cut more", 25, 1800, 40, false, true},
	} {
		o := Observation{Now: 200 * time.Millisecond, Workers: 20, Done: int64(c.rate / 5), Work: 4 * time.Second}
		o.Squares = (1 + c.cv2) * 16 / float64(o.Done+1)
		s := reportStatus{ref: yard{n: 10, rate: 1000, done: 1e6, cv2: c.cv2, span: 20}, change: Observation{Workers: c.before}}
		y := s.read(&Observation{}, &o)
		y.done = 1e6 // so that chance is out of it
		if v := s.weigh(s.ref, y); v.low <= 0 != c.low || v.high >= 0 != c.high {
			t.Errorf("%s: %.2f to %.2f of the yardstick", c.name, math.Exp(v.low), math.Exp(v.high))
		}
	}
}

// TestOthersAreNotForgottenInALull: where others swing the throughput, two quiet seconds do not make a cut look safe; a minute
// does, and a single change is another downstream.
func TestOthersAreNotForgottenInALull(t *testing.T) {
	s := reportStatus{}
	o := Observation{}
	windows := func(n int, rates ...float64) {
		for i := range n {
			y := yard{n: 10, rate: rates[i%len(rates)], done: 1e4, span: 0.1}
			if s.ref.n == 0 {
				s.ref = y
			}
			o.Now += 100 * time.Millisecond
			s.same(o, y)
		}
	}
	known := func() bool { return sure*math.Sqrt(s.others) > 2*part } // less is not tried then
	if windows(20, 1000); known() {
		t.Error("others, where nothing changes")
	}
	if windows(10, 2000); known() {
		t.Error("others, where a downstream is another from one moment on")
	}
	if windows(20, 1000, 2000); !known() {
		t.Error("no others, where the throughput swings twofold")
	}
	if windows(20, 1000); !known() {
		t.Error("forgotten in two seconds")
	}
	if windows(600, 1000); known() {
		t.Error("known after a minute without")
	}
}

// TestTwoSizesAreTested: of a doubling some hundred completions tell whether it brought all that it could or nothing, whichever
// of the two was measured first; what is between is left open for longer, and a larger step is known sooner.
func TestTwoSizesAreTested(t *testing.T) {
	for _, c := range []struct {
		name       string
		n, rate    float64 // beside 10 workers that do 1,000 a second
		done       float64
		more, less bool
	}{
		{"twice as much by a doubling", 20, 2000, 100, true, false},
		{"the same by a doubling", 20, 1000, 100, false, true},
		{"half of what it could, in logarithms", 20, 1414, 10_000, false, false},
		{"too few to tell", 20, 1000, 10, false, false},
		{"an eighth more, that needs thousands", 11.25, 1000, 100, false, false},
		{"an eighth more, by thousands", 11.25, 1000, 4000, false, true},
		{"half of it with half of the workers", 5, 500, 100, true, false},
		{"all of it with half of the workers", 5, 1000, 100, false, true},
		{"less comes out", 20, 500, 20, false, true},
	} {
		s := reportStatus{ref: yard{n: 10, rate: 1000, done: c.done, cv2: 1, span: 1}}
		v := s.weigh(s.ref, yard{n: c.n, rate: c.rate, done: c.done, cv2: 1, span: 1})
		if v.more != c.more || v.less != c.less {
			t.Errorf("%s: more %v, less %v", c.name, v.more, v.less)
		}
	}
}

// TestYoungYardstickHadNotMetTheLong: one message in a hundred takes half a second and more. A yardstick of the first 140 ms
// knows nothing of that, so what is less later may be the long ones, and no harm; one of half a minute knows.
func TestYoungYardstickHadNotMetTheLong(t *testing.T) {
	for _, c := range []struct {
		name    string
		span    float64 // that the yardstick of 26 workers was measured for, at 380 a second each
		oldest  time.Duration
		missing bool
	}{
		{"young, and something takes long", 0.14, 500 * time.Millisecond, false},
		{"young, and nothing takes long", 0.14, 3 * time.Millisecond, true},
		{"long known", 30, 500 * time.Millisecond, true},
	} {
		s := reportStatus{ref: yard{n: 26, rate: 9900, done: 9900 * c.span, span: c.span}}
		s.change = Observation{Now: 1300 * time.Millisecond, Workers: 26}
		o := Observation{Now: 1655 * time.Millisecond, Workers: 52, Busy: 52, Done: 1400, Work: 2800 * time.Millisecond,
			Squares: 0.0056, Oldest: c.oldest}
		if got := s.missing(o); got != c.missing {
			t.Errorf("%s: missing %v", c.name, got)
		}
	}
}

// TestPlacesAreChangedOnce: a probe of 36 proved nothing because the yardstick of 32 was in doubt, so 32 are measured again. When
// that proves nothing in 5 s either, more is tried than before: the downstream may have become larger in the meantime.
func TestPlacesAreChangedOnce(t *testing.T) {
	for _, c := range []struct {
		most, ref, size, target int
		after                   time.Duration
	}{
		{most: 32, ref: 36, size: 32, after: 6 * time.Second, target: 40},
		{most: 32, ref: 36, size: 32, after: 4 * time.Second},
		{most: 0, ref: 36, size: 32, after: 6 * time.Second},  // half was tried, not more
		{most: 32, ref: 32, size: 16, after: 6 * time.Second}, // the same behind a bar
	} {
		s := reportStatus{ref: yard{n: float64(c.ref), rate: 7000, done: 1e4, cv2: 500, span: 1}, most: c.most}
		y := yard{n: float64(c.size), rate: 7000 * math.Sqrt(float64(c.size)/float64(c.ref)), done: 1e4, cv2: 500, span: 1}
		d, _ := s.compare(Observation{Now: c.after, Workers: c.size, Min: 1, Max: 256}, y, true)
		if d.Target != c.target {
			t.Errorf("most %d, %d beside %d after %v: %d, want %d", c.most, c.size, c.ref, c.after, d.Target, c.target)
		}
	}
}

// TestLargerDownstreamIsFoundThoughTimesScatter: where an eighth more proves nothing within its time, more is tried, and not
// waited as after a proof. The downstream takes 32 at once, and 128 from some moment on; times have a coefficient of variation
// of 3.
func TestLargerDownstreamIsFoundThoughTimesScatter(t *testing.T) {
	const patience = 25 * time.Second
	for change := 15 * time.Second; change <= 30*time.Second; change += time.Second {
		grown := time.Duration(0)
		feed(t, ReportStatus(), int((change+patience)/tick), Observation{Workers: 1, Min: 1, Max: 256, Backlog: 1024, Full: true},
			func(_ int, o *Observation) {
				knee := 32
				if o.Now >= change {
					if knee = 128; grown == 0 && o.Workers >= 64 {
						grown = o.Now
					}
				}
				before := o.Squares
				full(o, 5*time.Millisecond*time.Duration(max(knee, o.Workers))/time.Duration(knee))
				o.Squares += 9 * (o.Squares - before)
				o.Backlog, o.Full = 1024, true
			})
		if grown == 0 {
			t.Errorf("larger from %v on: less than half of its workers %v later", change, patience)
		}
	}
}

// TestHoldsDifferFromPoolToPool: replicas on one downstream that do the same work must not probe it together. Each waits for
// three to five quarters of the time that all others wait, and when it does depends on what it alone has done.
func TestHoldsDifferFromPoolToPool(t *testing.T) {
	probe := func(done int64) (at time.Duration) { // when more was first tried after a growth that brought nothing
		s, e := ReportStatus(), estimate{}
		o := Observation{Workers: 1, Min: 1, Max: 256, Backlog: 1024, Full: true, Done: done}
		for barred := time.Duration(0); o.Now < 10*time.Second; {
			o.Now += tick
			full(&o, 5*time.Millisecond*time.Duration(max(32, o.Workers))/32)
			o.Rates = e.update(&o)
			switch d := s.Step(o); {
			case d.Target < o.Workers:
				barred, o.Workers = o.Now, d.Target
			case d.Target > o.Workers && barred > 0:
				return o.Now - barred
			default:
				o.Workers = d.Target
			}
		}
		t.Fatal("it never probed")
		return 0
	}
	seen := map[time.Duration]bool{}
	for replica := range int64(20) {
		at := probe(1000 * replica)
		if seen[at] = true; at < firstHold*3/4 || at > firstHold*5/4+2*tick {
			t.Errorf("replica %d held for %v, want three to five quarters of %v", replica, at, firstHold)
		}
	}
	if len(seen) < 5 {
		t.Errorf("20 replicas have %d different holds: they probe together", len(seen))
	}
}

// TestLongHandlersHaveAWorkerEach: one more that comes while all are busy for minutes needs one worker more. A single arrival in
// 50 ms looks like twenty a second, for which Little's law asks for thousands.
func TestLongHandlersHaveAWorkerEach(t *testing.T) {
	long := Rates{Arrivals: 20, Rising: 20, Throughput: 8, Samples: 64, Handler: 5 * time.Minute, Usual: 5 * time.Minute,
		Proven: 5 * time.Minute}
	batch := long
	batch.Arrivals, batch.Rising, batch.Throughput = 2000, 2000, 3200
	batch.Handler, batch.Usual, batch.Proven = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	for _, c := range []struct {
		name    string
		rates   Rates
		each    int // messages in a worker's hand
		backlog int
		most    int
	}{
		{"one of five minutes", long, 1, 1, 38},
		{"a batch of a hundred, which all end in 160 ms", batch, 100, 100, 32},
		{"twenty such batches", batch, 100, 2000, 57},
	} {
		s, o := ReportStatus(), Observation{Workers: 32, Min: 1, Max: 256, Busy: 31, Idle: 1, InHand: 31 * c.each, Rates: c.rates}
		for range 400 {
			o.Now += tick
			s.Step(o)
		}
		o.Done, o.Busy, o.Idle, o.InHand, o.Backlog, o.Now = 1e4, 32, 0, 32*c.each, c.backlog, o.Now+tick
		if d := s.Step(o); d.Target > c.most || c.most > 32 && d.Target == 32 {
			t.Errorf("%s: %d workers of 32, want at most %d: %s", c.name, d.Target, c.most, d.Why())
		}
	}
}
