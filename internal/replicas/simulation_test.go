package replicas_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/autoscaler"
	"github.com/longshoremq/longshore/internal/replicas"
)

// What is simulated: an hour, second by second, of a fleet whose number is set as Kubernetes sets it.
const (
	hour       = 3600
	partitions = 12
	workers    = 40
	handlerSec = 0.1                  // the time of a handler where nothing is in its way
	oneDoes    = workers / handlerSec // messages a second
	startSec   = 10                   // until a process works
	pauseSec   = 3                    // nobody works after a change of the number
	syncSec    = 15                   // the autoscaler looks
	settle     = 5 * time.Minute      // it takes the highest number of so long before it goes down
)

// begin is the first second.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A load is what comes in a second, and what the processes that work can do of it.
type load struct {
	name string
	come func(sec int) float64
	// does is what so many processes finish a second, and how long a handler takes then. nil: each does oneDoes.
	does func(processes int) (perSecond, handlerSeconds float64)
}

// A fleet is the processes of a consumer.
type fleet struct {
	backlog, come, done float64
	work                float64 // seconds of handlers
	began               []int   // when each process works
	pausedTill          int
	now                 int
}

// atWork is how many work now.
func (f *fleet) atWork() (n int) {
	for _, at := range f.began {
		if f.now >= at {
			n++
		}
	}
	return min(n, partitions)
}

// step is one second.
func (f *fleet) step(l load) {
	in := l.come(f.now)
	f.come, f.backlog = f.come+in, f.backlog+in
	if f.now < f.pausedTill {
		return
	}
	does, takes := oneDoes*float64(f.atWork()), handlerSec
	if l.does != nil {
		does, takes = l.does(f.atWork())
	}
	n := math.Min(f.backlog, does)
	f.backlog, f.done, f.work = f.backlog-n, f.done+n, f.work+n*takes
}

// set changes the number of processes.
func (f *fleet) set(n int) {
	for len(f.began) < n {
		f.began = append(f.began, f.now+startSec)
	}
	f.began, f.pausedTill = f.began[:n], f.now+pauseSec
}

// A rule is asked each second for a metric, which the autoscaler compares with target for each process. ok is false where it is
// unknown.
type rule func(f *fleet) (metric, target float64, ok bool)

// ours reads every two seconds, as the command does.
func ours(s replicas.Settings, unknown func(sec int) bool) rule {
	t := &replicas.Tracker{}
	return func(f *fleet) (float64, float64, bool) {
		if unknown != nil && unknown(f.now) {
			return 0, 1, false
		}
		if f.now%2 == 0 {
			t.Add(f.reading(s.PerReplica == 0))
		}
		fig := t.Figures()
		if !fig.Known {
			return 0, 1, false
		}
		return replicas.Need(fig, s).Replicas, 1, true
	}
}

// reading is what a broker and the processes would say.
func (f *fleet) reading(told bool) replicas.Reading {
	r := replicas.Reading{At: begin.Add(time.Duration(f.now) * time.Second), Most: partitions,
		Parts: []replicas.Part{{Name: "orders", Arrived: int64(f.come), Backlog: int64(f.backlog)}}}
	if !told {
		return r
	}
	n := f.atWork()
	r.Members = &replicas.Members{There: n}
	for i := range n { // the first tells of all: only sums matter
		p := replicas.Process{Name: fmt.Sprint(i), Workers: workers}
		if i == 0 {
			p.Runs, p.Work = int64(f.done), time.Duration(f.work*float64(time.Second))
		}
		r.Members.Told = append(r.Members.Told, p)
	}
	return r
}

// lagOver is what KEDA's scaler for Kafka says.
func lagOver(threshold float64) rule {
	return func(f *fleet) (float64, float64, bool) {
		return math.Min(f.backlog, threshold*partitions), threshold, true
	}
}

// An outcome is what became of an hour.
type outcome struct {
	changes        []change
	greatestLag    float64
	lagAtTheEnd    float64
	replicaMinutes float64
}

type change struct{ sec, to int }

// inside counts the changes in [from, to).
func (o outcome) inside(from, to int) (n int) {
	for _, c := range o.changes {
		if c.sec >= from && c.sec < to {
			n++
		}
	}
	return n
}

// simulate is an hour, from one process on.
func simulate(l load, r rule) outcome { return simulateFrom(1, l, r) }

func simulateFrom(processes int, l load, r rule) (o outcome) {
	f := &fleet{began: make([]int, processes)}
	scale := &autoscaler.Autoscaler{Min: 1, Max: partitions, Settle: settle}
	for f.now = 0; f.now < hour; f.now++ {
		f.step(l)
		o.greatestLag = math.Max(o.greatestLag, f.backlog)
		o.replicaMinutes += float64(len(f.began)) / 60
		metric, target, ok := r(f)
		if f.now%syncSec != syncSec-1 {
			continue
		}
		have := len(f.began)
		if want := scale.Next(begin.Add(time.Duration(f.now)*time.Second), have, metric, target, ok); want != have {
			f.set(want)
			o.changes = append(o.changes, change{f.now, want})
		}
	}
	o.lagAtTheEnd = f.backlog
	return o
}

func steady(perSecond float64) func(int) float64 { return func(int) float64 { return perSecond } }

// between is a load that is higher for a while.
func between(low, high float64, from, to int) func(int) float64 {
	return func(sec int) float64 {
		if sec >= from && sec < to {
			return high
		}
		return low
	}
}

func noise(mean, part float64) func(int) float64 {
	r := rand.New(rand.NewPCG(1, 2))
	return func(int) float64 { return mean * (1 + part*(2*r.Float64()-1)) }
}

// atMost is a downstream that all processes share. Their pools notice that more workers bring no more, and keep fewer: the time
// of a handler stays.
func atMost(perSecond float64) func(int) (float64, float64) {
	return func(n int) (float64, float64) { return math.Min(perSecond, oneDoes*float64(n)), handlerSec }
}

// inLine is the same with pools that do not notice: each handler waits until it is its turn.
func inLine(perSecond float64) func(int) (float64, float64) {
	return func(n int) (float64, float64) {
		if n == 0 {
			return 0, handlerSec
		}
		does := math.Min(perSecond, oneDoes*float64(n))
		return does, workers * float64(n) / does
	}
}

func loads() []load {
	return []load{
		{name: "steady 1,000/s (needs 2.5)", come: steady(1000)},
		{name: "step 300/s, 2,500/s for 20 min, 300/s", come: between(300, 2500, 300, 1500)},
		{name: "sine 200/s to 1,800/s in 20 min",
			come: func(sec int) float64 { return 1000 + 800*math.Sin(float64(sec)/1200*2*math.Pi) }},
		{name: "12,000 at once, each 5 min, beside 100/s", come: func(sec int) float64 {
			if sec%300 == 0 {
				return 12000
			}
			return 100
		}},
		{name: "noise 1,000/s ± 50 %", come: noise(1000, 0.5)},
		{name: "a downstream that takes 900/s, 2,000/s come for 20 min", come: between(300, 2000, 0, 1200), does: atMost(900)},
		{name: "the same, and handlers wait in line", come: between(300, 2000, 0, 1200), does: inLine(900)},
	}
}

var minute = replicas.Settings{Drain: time.Minute}

var update = flag.Bool("update", false, "write the table of docs/scaling.md anew")

// TestSimulation: the table of the docs is what comes out now. Its rule changes the number less often than lag by a threshold,
// at no greater lag where work can be done at all.
func TestSimulation(t *testing.T) {
	var table strings.Builder
	table.WriteString("| load | longshore | lag / 100 | lag / 10,000 |\n|---|---|---|---|\n")
	for _, l := range loads() {
		our, small, large := simulate(l, ours(minute, nil)), simulate(l, lagOver(100)), simulate(l, lagOver(10000))
		fmt.Fprintf(&table, "| %s | %v | %v | %v |\n", l.name, our, small, large)
		if n := len(our.changes); l.does == nil && n > 8 && n >= len(small.changes) {
			t.Errorf("%s: %d changes of the number, with lag/100 %d", l.name, n, len(small.changes))
		}
		if l.does == nil && our.lagAtTheEnd > 5000 {
			t.Errorf("%s: %.0f wait at the end", l.name, our.lagAtTheEnd)
		}
	}
	const begin, end = "<!-- simulation -->\n", "<!-- /simulation -->"
	const page = "../../docs/scaling.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no place for the table", page)
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+"\n"+table.String()+"\n"+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case strings.TrimSpace(have) != strings.TrimSpace(table.String()):
		t.Errorf("%s has another table than\n%swrite it anew: go test ./internal/replicas -run TestSimulation -update", page,
			table.String())
	}
}

// String is a cell of the table: changes of the number, the greatest lag, minutes of all processes together.
func (o outcome) String() string {
	return fmt.Sprintf("%d / %s / %.0f", len(o.changes), thousands(int(o.greatestLag)), o.replicaMinutes)
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// TestSteadyParts: where the load does not change, the number changes once at most, after the time that it takes to go down.
func TestSteadyParts(t *testing.T) {
	step := loads()[1]
	o := simulate(step, ours(minute, nil))
	for _, part := range [][2]int{{30, 300}, {700, 1500}, {2200, hour}} {
		if n := o.inside(part[0], part[1]); n > 1 {
			t.Errorf("%d changes in the steady part %v: %v", n, part, o.changes)
		}
	}
}

// TestUnknownKeepsTheNumber: ten minutes without an answer, in the middle of a high load.
func TestUnknownKeepsTheNumber(t *testing.T) {
	step := loads()[1]
	o := simulate(step, ours(minute, func(sec int) bool { return sec >= 600 && sec < 1200 }))
	if n := o.inside(600, 1200); n > 0 {
		t.Errorf("%d changes while the metric was unknown: %v", n, o.changes)
	}
}

// TestWrongNumber: a number from the metadata that is too low costs processes, and none of the work; one that is too high holds
// work up, for a while.
func TestWrongNumber(t *testing.T) {
	l := loads()[0]
	right := simulate(l, ours(replicas.Settings{PerReplica: oneDoes, Drain: time.Minute}, nil))
	low := simulate(l, ours(replicas.Settings{PerReplica: oneDoes / 2, Drain: time.Minute}, nil))
	high := simulate(l, ours(replicas.Settings{PerReplica: 2 * oneDoes, Drain: time.Minute}, nil))
	t.Logf("right %v, half %v, twice %v", right, low, high)
	if low.replicaMinutes <= right.replicaMinutes || low.greatestLag > right.greatestLag*1.1 {
		t.Errorf("half of the right number: %v, want more processes and no more lag than %v", low, right)
	}
	if high.greatestLag <= right.greatestLag || high.lagAtTheEnd > 60*1000 {
		t.Errorf("twice the right number: %v, %.0f at the end, want more lag than %v, and bounded", high, high.lagAtTheEnd, right)
	}
}

// TestSaturated: a downstream that takes no more holds the number, whether the pools keep the handlers' time or not; and the
// number goes up again when it takes more.
func TestSaturated(t *testing.T) {
	for _, l := range loads()[5:] {
		o := simulate(l, ours(minute, nil))
		most := 0
		for _, c := range o.changes {
			most = max(most, c.to)
		}
		if n := len(o.changes); n > 10 || o.replicaMinutes > 400 {
			t.Errorf("%s: %d changes, up to %d, %.0f replica-minutes: %v", l.name, n, most, o.replicaMinutes, o.changes)
		}
	}
	mended := load{name: "mended", come: steady(2000), does: atMost(900)}
	f := 0
	mended.come = func(sec int) float64 { f = sec; return 2000 }
	mended.does = func(n int) (float64, float64) {
		if f < 900 {
			return atMost(900)(n)
		}
		return oneDoes * float64(n), handlerSec
	}
	if o := simulate(mended, ours(minute, nil)); o.lagAtTheEnd > 20000 {
		t.Errorf("the downstream takes all since 15 min: %.0f wait at the end: %v", o.lagAtTheEnd, o.changes)
	}
}

// TestOwnBound: where each process is held by a limit of its own, more processes bring more, although their workers are not
// busy: they are not held.
func TestOwnBound(t *testing.T) {
	l := load{name: "a rate limit of 100/s in each process", come: steady(700),
		does: func(n int) (float64, float64) { return 100 * float64(n), handlerSec }}
	o := simulate(l, ours(minute, nil))
	if last := o.changes[len(o.changes)-1].to; last < 8 || o.lagAtTheEnd > o.greatestLag/2 {
		t.Errorf("%v, %.0f wait at the end: %v", o, o.lagAtTheEnd, o.changes)
	}
}

// TestFastHandlers: where handlers take next to no time, what their workers could do says nothing: the process is bound by
// something else. It is found out by what comes out.
func TestFastHandlers(t *testing.T) {
	for _, first := range []int{1, 2} {
		l := load{name: "1,000/s in each process, whatever the handlers take", come: steady(4500),
			does: func(n int) (float64, float64) { return 1000 * float64(n), 1e-5 }}
		o := simulateFrom(first, l, ours(minute, nil))
		if len(o.changes) == 0 || o.changes[len(o.changes)-1].to < 5 || o.lagAtTheEnd > o.greatestLag/2 {
			t.Errorf("from %d: %v, %.0f wait at the end: %v", first, o, o.lagAtTheEnd, o.changes)
		}
	}
}
