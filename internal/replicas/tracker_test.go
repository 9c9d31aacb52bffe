package replicas_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/internal/replicas"
)

// at is a moment so many seconds after the first.
func at(sec int) time.Time { return time.Date(2026, 1, 1, 0, 0, sec, 0, time.UTC) }

func part(name string, arrived, backlog int64) replicas.Part {
	return replicas.Part{Name: name, Arrived: arrived, Backlog: backlog}
}

func tracked(readings ...replicas.Reading) replicas.Figures {
	t := &replicas.Tracker{}
	for _, r := range readings {
		t.Add(r)
	}
	return t.Figures()
}

func read(sec int, parts ...replicas.Part) replicas.Reading {
	return replicas.Reading{At: at(sec), Parts: parts}
}

// TestHeld: what a broker holds back is no work. It was not done where it is held, and had come before where it is not any more.
func TestHeld(t *testing.T) {
	held := replicas.Part{Name: "a", Arrived: 1100, Backlog: 1100, Held: true}
	if f := tracked(read(0, part("a", 1000, 1000)), read(10, held)); f.In != 0 || f.Out != 0 || f.Backlog != 0 || f.Held != 1100 {
		t.Errorf("held: %+v", f)
	}
	if f := tracked(read(0, held), read(10, part("a", 1200, 1200))); f.In != 10 || f.Out != 0 || f.Backlog != 1200 || f.Held != 0 {
		t.Errorf("not any more: %+v", f)
	}
}

// TestRates: what came and what was finished, however the parts of it change.
func TestRates(t *testing.T) {
	for name, c := range map[string]struct {
		readings []replicas.Reading
		in, out  float64
		backlog  int64
	}{
		"came and was done": {[]replicas.Reading{read(0, part("a", 100, 0)), read(10, part("a", 200, 20))}, 10, 8, 20},
		"of two": {[]replicas.Reading{read(0, part("a", 0, 0), part("b", 50, 50)),
			read(10, part("a", 100, 0), part("b", 50, 0))}, 10, 15, 0},
		"a partition is added": {[]replicas.Reading{read(0, part("a", 0, 0)), read(10, part("a", 0, 0), part("b", 1000, 70))},
			0, 0, 70},
		"a topic was made again": {[]replicas.Reading{read(0, part("a", 1000, 500)), read(10, part("a", 10, 10))}, 0, 0, 10},
		"and counts on from there": {[]replicas.Reading{read(0, part("a", 1000, 500)), read(5, part("a", 10, 10)),
			read(10, part("a", 110, 60))}, 10, 5, 60},
		"one is gone": {[]replicas.Reading{read(0, part("a", 10, 10), part("b", 10, 10)), read(10, part("a", 10, 10))},
			0, 0, 10},
		"the mean is of 15 s": {[]replicas.Reading{read(0, part("a", 0, 0)), read(100, part("a", 1e6, 0)),
			read(115, part("a", 1e6+150, 0))}, 10, 10, 0},
		"after a while without any": {[]replicas.Reading{read(0, part("a", 0, 0)), read(1000, part("a", 10000, 0))}, 10, 10, 0},
		"a clock that stands is later": {[]replicas.Reading{read(0, part("a", 0, 0)), read(10, part("a", 100, 0)),
			read(10, part("a", 900, 0))}, 10, 10, 0},
	} {
		f := tracked(c.readings...)
		if !f.Known || f.In != c.in || f.Out != c.out || f.Backlog != c.backlog {
			t.Errorf("%s: %+v, want in %v out %v backlog %d", name, f, c.in, c.out, c.backlog)
		}
	}
	if f := tracked(read(0, part("a", 10, 10))); f.Known {
		t.Errorf("rates are known from one reading: %+v", f)
	}
}

// TestLater: what waits in retry topics is no backlog; when it comes is its arrival.
func TestLater(t *testing.T) {
	retry := func(arrived, backlog int64) replicas.Part {
		return replicas.Part{Name: "r", Arrived: arrived, Backlog: backlog, Later: true}
	}
	f := tracked(read(0, part("a", 0, 0), retry(0, 0)), read(10, part("a", 100, 0), retry(50, 50)))
	if f.Backlog != 0 || f.Later != 50 || f.In != 15 || f.Out != 10 {
		t.Errorf("%+v", f)
	}
}

// TestEach: what one process does follows from what they tell of their handlers.
func TestEach(t *testing.T) {
	tell := func(sec int, there int, ps ...replicas.Process) replicas.Reading {
		return replicas.Reading{At: at(sec), Members: &replicas.Members{There: there, Told: ps}}
	}
	p := func(name string, workers int, runs int64, work time.Duration) replicas.Process {
		return replicas.Process{Name: name, Workers: workers, Runs: runs, Work: work}
	}
	for name, c := range map[string]struct {
		readings []replicas.Reading
		each     float64
		members  int
	}{
		"100 ms, 40 workers": {[]replicas.Reading{tell(0, 1, p("a", 40, 0, 0)),
			tell(10, 1, p("a", 40, 100, 10*time.Second))}, 400, 1},
		"two of different size": {[]replicas.Reading{tell(0, 2, p("a", 40, 0, 0), p("b", 20, 0, 0)),
			tell(10, 2, p("a", 40, 50, 5*time.Second), p("b", 20, 50, 5*time.Second))}, 300, 2},
		"all was done before": {[]replicas.Reading{tell(0, 1, p("a", 40, 100, 10*time.Second)),
			tell(10, 1, p("a", 40, 100, 10*time.Second))}, 400, 1},
		"too few runs": {[]replicas.Reading{tell(0, 1, p("a", 40, 0, 0)), tell(10, 1, p("a", 40, 9, time.Second))}, 0,
			1},
		"one was started again": {[]replicas.Reading{tell(0, 1, p("a", 40, 5000, time.Hour)),
			tell(5, 1, p("a", 40, 10, time.Second)), tell(10, 1, p("a", 40, 110, 11*time.Second))}, 400, 1},
		"one does not answer": {[]replicas.Reading{tell(0, 2, p("a", 40, 0, 0)),
			tell(10, 2, p("a", 40, 100, 10*time.Second))}, 400, 2},
		"what was told is kept at zero": {[]replicas.Reading{tell(0, 1, p("a", 40, 0, 0)), tell(10, 1, p("a", 40, 100, 10*time.Second)),
			tell(500, 0), tell(600, 0)}, 400, 0},
		"nobody is asked": {[]replicas.Reading{read(0), read(10)}, 0, -1},
	} {
		if f := tracked(c.readings...); f.Each != c.each || f.Members != c.members {
			t.Errorf("%s: each %v of %d, want %v of %d", name, f.Each, f.Members, c.each, c.members)
		}
	}
}

// TestMemory: readings for a day take no more room than those of a minute.
func TestMemory(t *testing.T) {
	tracker := &replicas.Tracker{}
	i := 0
	next := func() {
		i++
		tracker.Add(read(i, part(fmt.Sprint("p", i/1000), int64(i), 1)))
	}
	for range 10000 {
		next()
	}
	if n := testing.AllocsPerRun(10000, next); n > 12 {
		t.Errorf("%v allocations a reading", n)
	}
}

// TestOutage: while a breaker is open its process waits and tries; how long that takes tells nothing of what it can do: nor do
// the first seconds, in which all hangs until the breaker opens. What is held then was never tried, and nothing is.
func TestOutage(t *testing.T) {
	for _, known := range []bool{true, false} {
		tr := &replicas.Tracker{}
		runs, work, arrived, backlog := int64(0), time.Duration(0), int64(0), int64(0)
		ask := func(sec int, open bool) replicas.Figures {
			p := replicas.Process{Workers: 16, Runs: runs, Work: work, Open: open}
			q := p
			p.Name, q.Name = "a", "b"
			tr.Add(replicas.Reading{At: at(sec), Parts: []replicas.Part{part("in", arrived, backlog)}, Most: 12,
				Members: &replicas.Members{There: 2, Told: []replicas.Process{p, q}}})
			return tr.Figures()
		}
		for sec := 0; sec < 3000; sec += 2 {
			out := sec >= 100 && sec < 1000
			arrived += 80
			switch {
			case !out && (known || sec > 100):
				runs, work, backlog = runs+40, work+4*time.Second, max(0, backlog-560)
			case sec == 112: // all calls end by their timeout, and the breaker opens
				runs, work = runs+16, work+16*12*time.Second
				backlog += 80
			default:
				backlog += 80
			}
			f := ask(sec, out && sec >= 112)
			if sec < 20 || sec >= 100 && sec < 112 {
				continue
			}
			a := replicas.Need(f, replicas.Settings{Drain: time.Minute})
			each := 160.0
			if !known && sec < 1002 {
				each = 0
			}
			if f.Each != each || f.Hold != 0 || a.Replicas > 2 && f.Open {
				t.Fatalf("after %d s: one does %v/s, hold %d, %+v; want %v/s", sec, f.Each, f.Hold, a, each)
			}
		}
	}
}

// TestSlowCalls: calls take ten minutes and end together. That nothing is finished for a minute says nothing of how many
// processes help, and none of those there is taken away.
func TestSlowCalls(t *testing.T) {
	const there, workers, call = 12, 4, 600 // seconds
	tr := &replicas.Tracker{}
	done := int64(0) // calls of each process
	for sec := 0; sec < 6*call; sec += 2 {
		if sec > 0 && sec%call == 0 {
			done += workers
		}
		runs := 40 + done
		m := &replicas.Members{There: there}
		for i := range there {
			m.Told = append(m.Told, replicas.Process{Name: fmt.Sprint(i), Workers: workers, Runs: runs,
				Work: time.Duration(runs) * call * time.Second})
		}
		tr.Add(replicas.Reading{At: at(sec), Parts: []replicas.Part{part("in", 2000, 1000-there*done)}, Most: 100, Members: m})
		if f := tr.Figures(); sec > 2 && (f.Hold > 0 && f.Hold < there) {
			t.Fatalf("after %d s: hold at %d of %d", sec, f.Hold, there)
		}
	}
}

// TestSaturatedSlowCalls: calls of ten minutes and more, and twice as many processes bring no more: each call takes twice as
// long. That is found, however long it takes to see.
func TestSaturatedSlowCalls(t *testing.T) {
	const workers, out, long = 64, 0.2, 4 * 3600 // a second, together
	tr := &replicas.Tracker{}
	done, backlog := 0.0, 100_000.0
	runs := map[int]float64{}
	work := map[int]float64{}
	held := 0
	for sec := 0; sec < long; sec += 10 {
		there := 2
		if sec >= long/3 {
			there = 4
		}
		done, backlog = done+10*out, backlog-10*out
		m := &replicas.Members{There: there}
		for i := range there {
			runs[i] += 10 * out / float64(there)
			work[i] += 10 * workers
			m.Told = append(m.Told, replicas.Process{Name: fmt.Sprint(i), Workers: workers, Runs: int64(runs[i]),
				Work: time.Duration(work[i]) * time.Second})
		}
		tr.Add(replicas.Reading{At: at(sec), Parts: []replicas.Part{part("in", 200_000, int64(backlog))}, Most: 100, Members: m})
		if h := tr.Figures().Hold; h > 0 {
			held = h
		}
	}
	if held == 0 || held > 3 {
		t.Errorf("held at %d, want fewer than the 4 that bring no more than 2", held)
	}
}

// TestNothingComesOut: none of the processes finishes anything, and no breaker is open. No more are asked for, and none less.
func TestNothingComesOut(t *testing.T) {
	tr := &replicas.Tracker{}
	held := false
	for sec := 0; sec < 600; sec += 2 {
		there := 1
		if sec >= 200 {
			there = 2
		}
		m := &replicas.Members{There: there}
		for i := range there {
			m.Told = append(m.Told, replicas.Process{Name: fmt.Sprint(i), Workers: 16, Runs: 1000, Work: 100 * time.Second})
		}
		n := int64(sec)
		tr.Add(replicas.Reading{At: at(sec), Parts: []replicas.Part{part("in", 1000*n, 1000*n)}, Most: 12, Members: m})
		f := tr.Figures()
		held = held || f.Hold == there
		if f.Hold > 0 && f.Hold < there {
			t.Fatalf("after %d s: hold at %d of %d", sec, f.Hold, there)
		}
	}
	if !held {
		t.Error("more are asked for, though nothing comes out")
	}
}

// TestLimited: while processes wait for a limit that they share no more are asked for, and nothing is concluded from what comes
// out. When the limit was raised, as many as there are to be are asked for at once.
func TestLimited(t *testing.T) {
	tr := &replicas.Tracker{}
	arrived, backlog, runs, work := int64(0), int64(0), int64(0), time.Duration(0)
	for sec := 0; sec < 1200; sec += 2 {
		limited := sec < 600
		arrived, backlog = arrived+2000, backlog+1400
		runs, work = runs+300, work+30*time.Second // each process 150/s, of which it could do 160
		p := replicas.Process{Workers: 16, Runs: runs, Work: work, Limited: limited}
		q := p
		p.Name, q.Name = "a", "b"
		tr.Add(replicas.Reading{At: at(sec), Parts: []replicas.Part{part("in", arrived, backlog)}, Most: 12,
			Members: &replicas.Members{There: 2, Told: []replicas.Process{p, q}}})
		f := tr.Figures()
		if sec < 20 {
			continue
		}
		a := replicas.Need(f, replicas.Settings{Drain: time.Minute})
		switch {
		case limited && (a.Reason != replicas.Limit || a.Replicas != 2 || f.Hold != 0):
			t.Fatalf("after %d s: %+v, hold %d, want the two that are there", sec, a, f.Hold)
		case sec == 602 && a.Replicas != 12:
			t.Fatalf("after %d s: %+v, want 12", sec, a)
		}
	}
}

// TestHoldUntried: processes that do far less than they could are not said to have been more.
func TestHoldUntried(t *testing.T) {
	tr := &replicas.Tracker{}
	var f replicas.Figures
	for sec := 0; sec < 120; sec += 2 {
		n := int64(sec)
		p := replicas.Process{Workers: 16, Runs: 10 * n, Work: time.Duration(10*n) * 100 * time.Millisecond}
		q := p
		p.Name, q.Name = "a", "b"
		tr.Add(replicas.Reading{At: at(sec), Parts: []replicas.Part{part("in", 1000*n, 980*n)}, Most: 12,
			Members: &replicas.Members{There: 2, Told: []replicas.Process{p, q}}})
		f = tr.Figures()
	}
	a := replicas.Need(f, replicas.Settings{Drain: time.Minute})
	if f.Hold == 0 || !f.Untried || a.Reason != replicas.Hold || strings.Contains(a.Why, "brought no more") {
		t.Errorf("hold %d, untried %v: %+v", f.Hold, f.Untried, a)
	}
}

// TestReadingsThatFailed: the broker was away for ten minutes, and nobody could look. That nothing came out meanwhile is no proof
// that more processes bring no more.
func TestReadingsThatFailed(t *testing.T) {
	tr := &replicas.Tracker{}
	arrived, backlog, runs := int64(100_000), int64(100_000), int64(0)
	for sec := 0; sec < 900; sec += 2 {
		if sec >= 100 && sec < 700 {
			continue
		}
		arrived, backlog, runs = arrived+1000, backlog+360, runs+320 // each of two does what it could, 160/s
		p := replicas.Process{Workers: 16, Runs: runs, Work: time.Duration(runs) * 100 * time.Millisecond}
		q := p
		p.Name, q.Name = "a", "b"
		tr.Add(replicas.Reading{At: at(sec), Parts: []replicas.Part{part("in", arrived, backlog)}, Most: 12,
			Members: &replicas.Members{There: 2, Told: []replicas.Process{p, q}}})
		if f := tr.Figures(); f.Hold != 0 {
			t.Fatalf("after %d s: held at %d, %+v", sec, f.Hold, replicas.Need(f, replicas.Settings{Drain: time.Minute}))
		}
	}
}
