package pool_test

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// bounds are what the median grade must keep; zero: not bounded.
type bounds struct {
	t90, p99  time.Duration
	ratio     float64 // worker-seconds over the oracle's
	goodput   float64
	thrash    float64
	reversals float64
	peak      int
	starved   time.Duration
	quick     bool // played in each run of the tests
}

// limits are the bounds by the first word of a load's name.
var limits = map[string]bounds{
	"S1":  {t90: 60 * ms, p99: 37 * ms, ratio: 1.55, quick: true},
	"S2":  {t90: 91 * ms, p99: 29 * ms, ratio: 1.45},
	"S2b": {t90: 2 * ms, p99: 28 * ms, ratio: 3.1, peak: 3, quick: true},
	"S3":  {t90: 45 * ms, ratio: 1.15, thrash: 100, goodput: 6272, peak: 128},
	"S3b": {t90: 45 * ms, ratio: 1.1, thrash: 100, goodput: 6136, peak: 128, quick: true},
	"S5":  {t90: 65 * ms, p99: 47 * ms, ratio: 2.0},
	"S6":  {t90: 65 * ms, p99: 6 * ms, ratio: 2.8},
	"S7":  {t90: 100 * ms, p99: 60 * ms, ratio: 1.35, quick: true},
	"S7c": {goodput: 1900, ratio: 1.4, starved: 7 * sec, quick: true},
	"S8":  {t90: 30 * ms, p99: 1 * ms, ratio: 1.5, quick: true},
	"S9":  {t90: 460 * ms, p99: 600 * ms, ratio: 1.5, quick: true},
	"S10": {t90: 130 * ms, p99: 66 * ms, ratio: 1.45},
	"S11": {t90: 600 * ms, ratio: 1.2, goodput: 25000},
	"S12": {t90: 60 * ms, ratio: 1.3, thrash: 60, goodput: 627, quick: true},
	"E1":  {goodput: 2700, ratio: 2, quick: true},
	"E2":  {goodput: 3800, ratio: 2, quick: true},
	"R3":  {goodput: 5760, ratio: 2, quick: true},
	"A2":  {goodput: 45, ratio: 1.9, quick: true},
	"A3":  {goodput: 38, ratio: 2.5},
	"E3":  {goodput: 2700, ratio: 2},
	"E4":  {goodput: 23000, ratio: 2},
	"E5t": {goodput: 5760, ratio: 1.25, quick: true},
	"T1":  {p99: 1200 * ms, ratio: 1.3, quick: true},
	"T5":  {p99: 1300 * ms, ratio: 1.3},
	"T20": {p99: 3 * sec, ratio: 1.4, quick: true},
	"R1":  {goodput: 5760, ratio: 2},
	"R2":  {goodput: 5760, ratio: 2},
	"R7":  {goodput: 4940, quick: true},
	"R8":  {goodput: 288, ratio: 5},
	"O1":  {goodput: 2990, ratio: 1.45},
	"O2":  {goodput: 2660, ratio: 2},
	"O3":  {goodput: 5980, ratio: 1.1, quick: true},
	"O4":  {goodput: 1240, ratio: 1.5},
	"O5":  {goodput: 12400, ratio: 1.4, quick: true},
	"H7":  {t90: 150 * ms, p99: 120 * ms, ratio: 1.7},
	"H9":  {t90: 100 * ms, ratio: 1.5},
	"P":   {p99: 30 * ms, ratio: 1.6, peak: 45, quick: true},
	"J":   {t90: 45 * sec, ratio: 1.2},
	"Q1":  {t90: 9 * sec, ratio: 1.3, starved: 4 * sec},
	"Q2":  {t90: 18 * sec, ratio: 1.4, starved: 4 * sec},
	"Q3":  {t90: 25 * sec, ratio: 1.3, starved: 4 * sec, quick: true},
	"L":   {ratio: 1.55, reversals: 10, quick: true},
	"N":   {ratio: 1.5, reversals: 10},
	"U1":  {p99: 7 * sec, ratio: 1.2, quick: true},
	"U2":  {p99: 800 * ms, ratio: 1.2},
	"U3":  {p99: 6 * sec, ratio: 1.1},
	"U4":  {p99: 3 * sec, ratio: 1.2},
}

// id is the first word of a load's name.
func id(l load) string { word, _, _ := strings.Cut(l.name, " "); return word }

func traced(name string) bool {
	s := os.Getenv("POOL_TRACE")
	return s != "" && strings.HasPrefix(name, s)
}

// TestScenarios plays loads in virtual time on a real pool and prints how the default policy did. In each run of the tests it
// plays the quick ones; with LONGSHORE_SCENARIOS=1 all, beside the fixed size that is best for each, Little's law and AIMD.
// POOL_LOADS=E1,R8 plays only these, POOL_SEEDS=n each n times, from POOL_SEED on, and POOL_TRACE=S1 logs the decisions of those
// whose name starts so.
func TestScenarios(t *testing.T) {
	every := os.Getenv("LONGSHORE_SCENARIOS") != ""
	seeds, _ := strconv.Atoi(os.Getenv("POOL_SEEDS"))
	first, _ := strconv.Atoi(os.Getenv("POOL_SEED"))
	only := os.Getenv("POOL_LOADS")
	printHeading()
	for _, l := range loads() {
		b := limits[id(l)]
		if only != "" && !slices.Contains(strings.Split(only, ","), id(l)) || only == "" && !every && !b.quick {
			continue
		}
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			n := 1
			if every {
				n = 5
				if id(l) == "S1" {
					n = 20
				}
			}
			gs := playSeeds(t, l, pool.ReportStatus, cmp.Or(seeds, n), first)
			misses := b.misses(l, gs)
			for len(misses) > 0 && len(gs) < enoughSeeds { // the luck of a few loads is no verdict
				gs = append(gs, playSeeds(t, l, pool.ReportStatus, 1, first+len(gs))...)
				misses = b.misses(l, gs)
			}
			printRow(l.name, "report-status", l, gs)
			if every && seeds == 0 {
				printOthers(t, l)
			}
			for _, miss := range misses {
				t.Errorf("median of %d: %s", len(gs), miss)
			}
		})
	}
}

// enoughSeeds make a median that is held against a load's bounds. Fewer are played where they keep them already.
const enoughSeeds = 9

// playSeeds plays the load n times.
func playSeeds(t *testing.T, l load, policy func() pool.Policy, n, first int) (gs []grade) {
	t.Helper()
	for i := range n {
		g := play(t, l, policy, uint64(first+i))
		if g.lost != 0 || g.underMin != 0 {
			t.Errorf("%d lost, %d times under Min", g.lost, g.underMin)
		}
		gs = append(gs, g)
	}
	return gs
}

// printOthers plays what the default policy stands beside: the best of some fixed sizes, Little's law with head-room, and AIMD.
func printOthers(t *testing.T, l load) {
	var best []grade
	size := 0
	for _, part := range []float64{0.5, 0.75, 1, 1.25, 1.5, 2, 1e9} { // the smallest that does as well as any
		n := max(l.min, min(l.max, int(math.Ceil(part*float64(l.need)))))
		gs := playSeeds(t, l, func() pool.Policy { return fixedAt(n) }, 1, 0)
		if best == nil || gs[0].goodput > 1.005*best[0].goodput || gs[0].goodput > 0.995*best[0].goodput &&
			gs[0].p99 < best[0].p99*9/10 {
			best, size = gs, n
		}
		if n == l.max {
			break
		}
	}
	printRow("", fmt.Sprintf("fixed %d", size), l, best)
	printRow("", "little", l, playSeeds(t, l, func() pool.Policy { return &little{} }, 1, 0))
	printRow("", "aimd", l, playSeeds(t, l, func() pool.Policy { return pool.AIMD(pool.AIMDConfig{}) }, 1, 0))
}

// fixedAt keeps a size of its own.
type fixedAt int

func (n fixedAt) Step(o pool.Observation) pool.Decision {
	return pool.Decision{Target: int(n), Force: true}
}

// little is Little's law with head-room, each 100 ms: what a simple scaler does.
type little struct {
	primed   bool
	at       time.Duration
	in       int64
	arrivals float64
}

func (c *little) Step(o pool.Observation) pool.Decision {
	const every = 100 * time.Millisecond
	d := pool.Decision{Target: o.Workers, Next: every}
	if c.primed && o.Now-c.at < every {
		d.Next = every - (o.Now - c.at)
		return d
	}
	if c.primed {
		c.arrivals += 0.5 * (float64(o.In-c.in)/(o.Now-c.at).Seconds() - c.arrivals)
	}
	c.primed, c.at, c.in = true, o.Now, o.In
	h := o.Rates.Handler.Seconds()
	if h == 0 {
		if o.Backlog > 0 {
			d.Target++
		}
		return d
	}
	d.Target = max(1, int(math.Ceil(c.arrivals*h*1.2+float64(o.Backlog)*h)))
	return d
}

// misses are the bounds that the median grade does not keep.
func (b bounds) misses(l load, gs []grade) (out []string) {
	mid := func(of func(grade) float64) float64 { return quantiles(gs, of)[1] }
	most := func(what string, got, limit float64) {
		if limit > 0 && (got > limit || got < 0) {
			out = append(out, fmt.Sprintf("%s is %.2f, should be at most %.2f", what, got, limit))
		}
	}
	most("t90 ms", mid(func(g grade) float64 { return millis(g.t90) }), millis(b.t90))
	most("p99 ms", mid(func(g grade) float64 { return millis(g.p99) }), millis(b.p99))
	most("worker-seconds over the oracle's", mid(func(g grade) float64 { return g.workerSec / l.oracle() }), b.ratio)
	most("workers moved/min", mid(func(g grade) float64 { return g.thrash }), b.thrash)
	most("reversals/min", mid(func(g grade) float64 { return g.reversals }), b.reversals)
	most("peak", mid(func(g grade) float64 { return float64(g.peak) }), float64(b.peak))
	most("starved ms", mid(func(g grade) float64 { return millis(g.starved) }), millis(b.starved))
	if got := mid(func(g grade) float64 { return g.goodput }); got < b.goodput {
		out = append(out, fmt.Sprintf("goodput is %.0f/s, should be at least %.0f/s", got, b.goodput))
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantiles are least, median and most.
func quantiles(gs []grade, of func(grade) float64) [3]float64 {
	x := make([]float64, len(gs))
	for i, g := range gs {
		x[i] = of(g)
	}
	slices.Sort(x)
	return [3]float64{x[0], x[len(x)/2], x[len(x)-1]}
}

func printHeading() {
	fmt.Println("| load | policy | t90 ms | peak | steady | ws/oracle | p99 ms | goodput/s | moved/min | reversals/min | starved " +
		"ms | bloated ms | shrink ms | tries |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
}

func printRow(name, policy string, l load, gs []grade) {
	cell := func(decimals int, of func(grade) float64) string {
		q := quantiles(gs, of)
		text := func(x float64) string { return fmt.Sprintf("%.*f", decimals, x) }
		if text(q[0]) == text(q[2]) {
			return text(q[1])
		}
		return fmt.Sprintf("%s (%s-%s)", text(q[1]), text(q[0]), text(q[2]))
	}
	fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, policy,
		cell(0, func(g grade) float64 { return millis(g.t90) }),
		cell(0, func(g grade) float64 { return float64(g.peak) }),
		cell(1, func(g grade) float64 { return g.steady }),
		cell(2, func(g grade) float64 { return g.workerSec / l.oracle() }),
		cell(1, func(g grade) float64 { return millis(g.p99) }),
		cell(0, func(g grade) float64 { return g.goodput }),
		cell(0, func(g grade) float64 { return g.thrash }),
		cell(0, func(g grade) float64 { return g.reversals }),
		cell(0, func(g grade) float64 { return millis(g.starved) }),
		cell(0, func(g grade) float64 { return millis(g.bloated) }),
		cell(0, func(g grade) float64 { return millis(g.shrink) }),
		cell(2, func(g grade) float64 { return g.tries }))
}

// patience is how long a load may do with less than half of what it needs while work waits: ten seconds, or one and a half
// handler times; and 25 where a growth does harm, for that is remembered for longer, or the downstream changes.
func (l *load) patience() time.Duration {
	if l.harms || l.graded == 2 {
		return 25 * sec
	}
	return max(10*sec, time.Duration(1.5*l.mean*1e9))
}

// TestManyPlays plays each load whose need stays the same POOL_PLAYS times, from POOL_SEED on, and names each play that for too
// long had less than half or more than three times the workers that it needs. POOL_LOADS=E1,R8 plays only these.
func TestManyPlays(t *testing.T) {
	plays, _ := strconv.Atoi(os.Getenv("POOL_PLAYS"))
	if plays == 0 {
		t.Skip("POOL_PLAYS is not set")
	}
	first, _ := strconv.Atoi(os.Getenv("POOL_SEED"))
	only := os.Getenv("POOL_LOADS")
	for _, l := range loads() {
		if l.varies || only != "" && !slices.Contains(strings.Split(only, ","), id(l)) {
			continue
		}
		for seed := first; seed < first+plays; seed++ {
			switch g := playSeeds(t, l, pool.ReportStatus, 1, seed)[0]; {
			case g.starved > l.patience():
				t.Errorf("%s, seed %d: %v with less than half of the need", id(l), seed, g.starved)
			case g.bloated > 5*sec:
				t.Errorf("%s, seed %d: %v with more than three times the need", id(l), seed, g.bloated)
			}
		}
	}
}
