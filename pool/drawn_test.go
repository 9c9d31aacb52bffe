package pool_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/longshoremq/longshore/pool"
)

// A draw is a load that nobody has thought of, and what a name says of it.
type draw struct {
	load
	r     *rand.Rand
	alone service // one call, when few run
	exp   float64 // how steeply calls slow down beyond the knee
	rate  float64 // messages a second
}

// drawn makes load number seed: a call's time and how it scatters, a knee or none, what arrives, and what changes half way.
func drawn(seed uint64) load {
	d := &draw{r: rand.New(rand.NewPCG(seed, 77))}
	d.graded, d.poisson, d.min = 1, d.r.IntN(2) == 0, 1
	d.max, d.queue = int(d.pick(32, 64, 128, 256, 256, 512)), int(d.pick(64, 256, 1024, 4096))
	d.name = fmt.Sprintf("D%d", seed)
	d.call()
	d.arrivals()
	return d.load
}

func (d *draw) pick(xs ...float64) float64 { return xs[d.r.IntN(len(xs))] }

// spread is a number between a and b, as often in each doubling.
func (d *draw) spread(a, b float64) float64 { return a * math.Pow(b/a, d.r.Float64()) }

func (d *draw) tell(format string, a ...any) { d.name += " " + fmt.Sprintf(format, a...) }

// call draws how long a call takes, and how many of them the downstream serves at full speed.
func (d *draw) call() {
	d.mean = d.spread(0.0005, 0.3)
	cv := d.pick(0.05, 0.3, 1, 1, 2, 3)
	d.alone = lognormal(time.Duration(d.mean*1e9), cv)
	d.tell("%.3gms CV %g", d.mean*1e3, cv)
	if d.r.IntN(5) == 0 {
		d.tail(d.pick(.001, .01, .05), min(d.pick(20, 100, 500), 5/d.mean))
	}
	d.service = d.alone
	if d.r.IntN(3) > 0 {
		d.knee, d.exp = int(d.spread(3, float64(d.max)*0.8)), d.pick(0.5, 0.8, 1, 1, 1.2, 1.5, 2)
		d.service = crowded(d.alone, d.knee, d.exp)
		d.tell("knee %d e %g", d.knee, d.exp)
	}
}

// tail has some calls take many times as long.
func (d *draw) tail(share, factor float64) {
	often := d.alone
	d.alone = func(busy int, at time.Duration, r *rand.Rand) time.Duration {
		x := often(busy, at, r)
		if r.Float64() < share {
			x = time.Duration(float64(x) * factor)
		}
		return x
	}
	d.mean *= 1 - share + share*factor
	d.tell("tail %g x%.0f", share, factor)
}

// arrivals draws what comes, and what changes in the middle of it.
func (d *draw) arrivals() {
	limit := float64(cmp.Or(d.knee, d.max))
	use, lead := d.pick(0.2, 0.5, 0.8, 0.95, 1.3, 2, 4), d.pick(0, 0, 0.1, 1.5)
	d.rate = use * limit / d.mean
	lasts := max(6*sec, min(40*sec, seconds(400_000/d.rate)))
	if d.mean > 0.05 {
		lasts = 90 * sec
	}
	d.tell("use %g, %g before, of %d, queue %d", use, lead, d.max, d.queue)
	d.phases = []phase{{2 * sec, d.rate * lead}, {lasts, d.rate}, {2 * sec, 0}}
	d.changes(2*sec, lasts/2, limit)
	need := d.rate * d.mean
	if d.knee > 0 {
		need = min(need, float64(d.knee))
	}
	d.need = max(1, min(d.max, int(math.Ceil(need))))
}

func (d *draw) changes(first, half time.Duration, limit float64) {
	before := d.service
	switch d.r.IntN(5) {
	case 0:
		d.knee = max(2, int(limit*d.pick(0.25, 0.5)))
		d.service = from(first+half, before, crowded(d.alone, d.knee, max(1, d.exp)))
		d.tell("then knee %d", d.knee)
	case 1:
		f := d.pick(0.2, 0.5, 2, 5)
		d.mean *= f
		d.service = from(first+half, before, func(busy int, at time.Duration, r *rand.Rand) time.Duration {
			return time.Duration(float64(before(busy, at, r)) * f)
		})
		d.tell("then x%g", f)
	case 2:
		d.service, d.fresh = nil, outside(before)
		d.tell("others")
		return
	default:
		return
	}
	d.phases, d.graded = []phase{d.phases[0], {half, d.rate}, {half, d.rate}, d.phases[2]}, 2
}

func seconds(x float64) time.Duration { return time.Duration(x * 1e9) }

// TestDrawnLoads plays loads that are drawn, beside the fixed size that is best for each, and prints how the default policy did:
// what came out, and how many workers that took. It holds the policy to no figure, for nobody knows what is possible; but nothing
// is lost, and there are never too few workers. POOL_DRAWS=200 plays so many, from POOL_SEED on.
func TestDrawnLoads(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("POOL_DRAWS"))
	first, _ := strconv.Atoi(os.Getenv("POOL_SEED"))
	quiet := n == 0
	var goods, sizes []float64
	for seed := range cmp.Or(n, 2) {
		l := drawn(uint64(first + seed))
		g := playSeeds(t, l, pool.ReportStatus, 1, 1)[0]
		if quiet {
			continue
		}
		size, best := bestFixed(t, l)
		good, many := g.goodput/best.goodput, g.steady/float64(size)
		if g.p99 <= best.p99 { // that one caught up in the graded time, and this one had less to catch up with
			good = max(1, good)
		}
		goods, sizes = append(goods, min(1, good)), append(sizes, max(1, many))
		fmt.Printf("| %s | need %d, best %d | goodput %.2f | workers %.2f | p99 %v, best %v | starved %v | bloated %v |\n", l.name,
			l.need, size, good, many, g.p99.Round(ms), best.p99.Round(ms), g.starved.Round(ms), g.bloated.Round(ms))
	}
	if !quiet {
		fmt.Printf("%d loads: goodput %.3f, workers %.3f of the best fixed sizes' (geometric means)\n", n, geometric(goods),
			geometric(sizes))
	}
}

// bestFixed is the fixed size that does most, and as soon.
func bestFixed(t *testing.T, l load) (size int, best grade) {
	for _, part := range []float64{0.5, 0.75, 1, 1.15, 1.4, 2, 3, 1e9} {
		n := max(l.min, min(l.max, int(math.Ceil(part*float64(l.need)))))
		g := playSeeds(t, l, func() pool.Policy { return fixedAt(n) }, 1, 1)[0]
		if size == 0 || g.goodput > 1.02*best.goodput || g.goodput > 0.99*best.goodput && g.p99 < best.p99*8/10 {
			size, best = n, g
		}
		if n == l.max {
			break
		}
	}
	return size, best
}

func geometric(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += math.Log(max(0.01, x))
	}
	return math.Exp(sum / float64(len(xs)))
}
