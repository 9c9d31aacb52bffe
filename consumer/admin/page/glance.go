package page

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page/internal/chart"
)

// A Glance is how a consumer is, in a sentence. Level is good, warn or bad.
type Glance struct {
	Level string
	Text  string
}

// trendSeconds is over how long a lag is looked at.
const trendSeconds = 20

// seenRuns is how many runs have to fail before most runs are said to: one message with all of its tries is not most.
const seenRuns = 10

// A look is what a glance is made of.
type look struct {
	stats  consumer.Stats
	ready  bool
	broken string        // what brokenOf says
	limits []string      // of its handlers, by name
	oldest time.Duration // how old the oldest message in hand is; 0: unknown
	latest []sample
}

// glance says whether a consumer keeps up, or what is worse than a lag: that what it handles fails, or does not come to an end.
func glance(l look) Glance {
	s, waiting := l.stats, waitingText(l.stats)
	switch {
	case s.State != consumer.Running && s.InFlight > 0:
		return Glance{"warn", fmt.Sprintf("It is %s, with %s in hand.", s.State, counted(s.InFlight))}
	case s.State != consumer.Running:
		return Glance{"warn", "It is " + s.State.String() + "."}
	case s.Paused:
		return Glance{"warn", "It is paused and takes no messages: " + waiting + "."}
	case !l.ready:
		return Glance{"bad", "It has no contact with its broker."}
	case l.broken != "": // calls that wait for it look as handlers that hang
		return Glance{"bad", l.broken + " " + capital(waiting) + "."}
	case s.Claims == 0 && s.InFlight == 0:
		return Glance{"good", "It stands by: other processes have all that it reads."}
	}
	t := trendOf(l.latest)
	if t.mostFail(len(l.latest)) {
		return Glance{"bad", fmt.Sprintf("Most runs fail: %s a second, and %s messages a second are handled or skipped. %s.",
			chart.Number(t.lately.failed), chart.Number(t.lately.passed), capital(waiting))}
	}
	if standsStill(s, t, l.latest) {
		return still(l, t, waiting)
	}
	return paceOf(l, t, waiting)
}

// paceOf says whether what waits becomes more, at the broker and here.
func paceOf(l look, t trend, waiting string) Glance {
	now := t.lag
	if math.IsNaN(now) {
		now = float64(max(0, l.stats.Lag.Waiting)) + float64(l.stats.Pool.Backlog) + float64(kept(l.stats))
	}
	few := now <= math.Max(10, t.passed) // a second's work
	switch {
	case l.stats.Lag.Waiting < 0 && few:
		return Glance{"warn", "How much waits at the broker is not known yet."}
	case few:
		return Glance{"good", "It keeps up: " + waiting + "."}
	case t.slope < -math.Max(1, now/600):
		left := time.Duration(now / -t.slope * float64(time.Second))
		return Glance{"good", fmt.Sprintf("It catches up: %s, %s fewer a second, about %s to go.", waiting,
			chart.Number(math.Round(-t.slope)), duration(left))}
	case t.grows():
		return Glance{"bad", fmt.Sprintf("It falls behind: %s, %s more a second. %s", waiting, chart.Number(math.Round(t.slope)),
			bound(l))}
	}
	return Glance{"warn", fmt.Sprintf("It holds its distance: %s. %s", waiting, bound(l))}
}

// waitingText says how many messages wait, and for what: at the broker, and here.
func waitingText(s consumer.Stats) string {
	parts := []string{"an unknown number of messages waits at the broker"}
	if s.Lag.Waiting >= 0 {
		parts[0] = messages(s.Lag.Waiting) + " at the broker"
	}
	for _, one := range []struct {
		n     int
		where string
	}{
		{s.Pool.Backlog, "here"},
		{s.Waiting, "here behind others in their order"},
		{s.AtLimit, "here until a limit lets them through"},
		{s.PutOff - s.AtLimit, "here until the time that they were put off to"},
		{retries(s), "here for their next attempt"},
	} {
		if one.n > 0 {
			parts = append(parts, chart.Whole(int64(one.n))+" "+one.where)
		}
	}
	last := len(parts) - 1
	if last == 0 {
		return parts[0]
	}
	return strings.Join(parts[:last], ", ") + ", and " + parts[last]
}

// kept is how many messages wait here for something else than a worker: the one before them, a limit, or their next attempt.
func kept(s consumer.Stats) int { return s.Waiting + s.Parked }

// brokenOf says which circuit breakers are not closed, and for how long; "" where all are.
func brokenOf(breakers map[string]admin.Breaker, now time.Time) string {
	var open []string
	for _, name := range slices.Sorted(maps.Keys(breakers)) {
		if since := breakers[name].OpenSince(); !since.IsZero() {
			open = append(open, fmt.Sprintf("%s (for %s)", name, duration(now.Sub(since))))
		}
	}
	const why = ": what its handlers call fails."
	switch last := len(open) - 1; last {
	case -1:
		return ""
	case 0:
		return "The circuit breaker " + open[0] + " is open" + why
	default:
		return "The circuit breakers " + strings.Join(open[:last], ", ") + " and " + open[last] + " are open" + why
	}
}

// standsStill says whether messages wait behind handlers of which none has finished one for as long as is looked at. Who had
// nothing to do for a part of that time finished nothing in it, either. Behind a full lane other workers may have nothing to do.
func standsStill(s consumer.Stats, t trend, latest []sample) bool {
	idle := func(x sample) bool { return x.busy == 0 }
	return len(latest) == trendSeconds && t.settled == 0 && s.Pool.Busy > 0 && (s.Pool.Busy >= s.Pool.Live || s.FullLanes > 0) &&
		(s.Lag.Waiting > 0 || s.Pool.Backlog > 0 || s.Waiting > 0) && !slices.ContainsFunc(latest, idle)
}

// still tells of that. Handlers may be meant to take long, so it is bad only where the lag grows meanwhile.
func still(l look, t trend, waiting string) Glance {
	g := Glance{"warn", fmt.Sprintf("Nothing was finished for %d s, and %s. %s", trendSeconds, inHandlers(l.stats),
		capital(waiting))}
	if t.grows() {
		g.Level, g.Text = "bad", g.Text+", "+chart.Number(math.Round(t.slope))+" more a second"
	}
	g.Text += "."
	if why := heldUp(l); why != "" {
		g.Text += " " + why
	}
	return g
}

// bound says what keeps it from doing more, as far as that can be seen.
func bound(l look) string {
	s, why := l.stats, heldUp(l)
	switch {
	case why != "":
		return why
	case s.Pool.Busy >= s.Pool.Live && s.Pool.Live >= s.Pool.Max:
		return fmt.Sprintf("All %d workers are busy, which is as many as it may have.", s.Pool.Max)
	case s.Pool.Busy >= s.Pool.Live:
		return "All workers are busy."
	}
	return "Not all workers are busy."
}

// heldUp says what else than its workers most of it waits for; "": nothing that can be seen.
func heldUp(l look) string {
	s := l.stats
	most := func(n int) bool { return n > 0 && 2*int64(n) > s.InFlight }
	why := ""
	switch {
	case s.FullLanes == 1:
		why = "A lane is full: what it is of takes in nothing more until the message at its head is done."
	case s.FullLanes > 1:
		why = fmt.Sprintf("%s lanes are full: what they are of takes in nothing more until the messages at their heads are done.",
			chart.Whole(int64(s.FullLanes)))
	case most(s.AtLimit) && len(l.limits) > 0:
		why = "Most of what is here waits for a limit: " + plain(strings.Join(l.limits, ", "), fieldBytes) + "."
	case most(s.PutOff):
		why = "Most of what is here was put off by its handler."
	case most(s.Waiting):
		why = "Most of what is here waits for the message before it in its order, and more workers do not help."
	case most(retries(s)):
		why = "Most of what is here has failed and waits for its next attempt."
	case s.Lag.Full && s.Pool.Busy < s.Pool.Live:
		return fmt.Sprintf("%s delivered and not settled, those included that the broker keeps for their next attempt: as many as may "+
			"be (max_ack_pending).", are(s.Lag.Unsettled-s.Lag.Waiting))
	default:
		return ""
	}
	if l.oldest >= time.Minute {
		why += " The oldest message here is " + duration(l.oldest) + " old."
	}
	return why
}

// stalled are the claims that take nothing in, since one message is not finished and too much behind it is.
func stalled(claims []consumer.ClaimStatus) (all []string) {
	for _, c := range claims {
		if c.Window >= 1 {
			all = append(all, fmt.Sprintf("%s %d takes in nothing more until its oldest message is settled: its window is full.",
				c.Topic, c.Partition))
		}
	}
	return all
}

// concernsOf are what is wrong with a consumer beside what its glance says: a place for dead letters that is not there, and dead
// letters that cannot be stored.
func concernsOf(t admin.Target, s consumer.Stats) (all []string) {
	if c, ok := t.(concerned); ok {
		all = c.Concerns()
	}
	return append(all, delayed(s)...)
}

// delayed tells of dead letters that cannot be stored.
func delayed(s consumer.Stats) []string {
	if s.LettersDelayed == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Dead letters that could not be stored so far: %s. They are kept here and tried again; "+
		"dead_letter_delayed under Events says why.", chart.Whole(int64(s.LettersDelayed)))}
}

// A trend is what a consumer did lately.
type trend struct {
	lag             float64 // what waits, there and here: the latest; NaN: unknown
	slope           float64 // how fast it grows a second
	failed, settled float64 // a second
	passed          float64 // a second: handled, or skipped, which is no failure
	lately          struct{ passed, failed float64 }
}

func trendOf(latest []sample) (t trend) {
	latest = latest[max(0, len(latest)-trendSeconds):]
	recent := latest[max(0, len(latest)-trendSeconds/4):]
	for _, x := range recent {
		n := float64(len(recent))
		t.lately.passed, t.lately.failed = t.lately.passed+(x.handled+x.skipped)/n, t.lately.failed+x.failed/n
	}
	for _, x := range latest {
		n := float64(len(latest))
		t.failed, t.settled = t.failed+x.failed/n, t.settled+x.settled/n
		t.passed += (x.handled + x.skipped) / n
	}
	t.lag, t.slope = slopeOf(latest)
	// After a burst it has grown in all, and falls by now.
	if _, slope := slopeOf(recent); slope < 0 && t.slope > 0 {
		t.slope = slope
	}
	return t
}

// slopeOf is what waited last, and how fast it grew a second.
func slopeOf(latest []sample) (last, slope float64) {
	first := math.NaN()
	var from time.Time
	last = math.NaN()
	for _, x := range latest {
		if math.IsNaN(x.lag) {
			continue
		}
		last = x.lag + x.queued + x.kept
		if math.IsNaN(first) {
			first, from = last, x.at
		}
		if x.at.After(from) {
			slope = (last - first) / x.at.Sub(from).Seconds()
		}
	}
	return last, slope
}

// mostFail says whether most runs do, of so many samples and still in the last ones: what is over is not said any more.
func (t trend) mostFail(samples int) bool {
	return t.failed > t.passed && t.failed*float64(samples) >= seenRuns && t.lately.failed > t.lately.passed
}

// grows says whether the lag does, more than by what it wavers.
func (t trend) grows() bool { return t.slope > math.Max(1, t.passed/100) }

// workersText says how many workers there are, and why.
func workersText(s consumer.Stats, last []Decision, now time.Time) string {
	count := "1 worker"
	if s.Pool.Live != 1 {
		count = chart.Whole(int64(s.Pool.Live)) + " workers"
	}
	text := fmt.Sprintf("%s, %d busy, between %d and %d.", count, s.Pool.Busy, s.Pool.Min, s.Pool.Max)
	if len(last) > 0 {
		d := last[0]
		text += fmt.Sprintf(" From %d to %d %s ago: %s.", d.From, d.To, duration(now.Sub(d.At)), plain(d.Why, fieldBytes))
	}
	return text
}

// inHandlers says how many workers are.
func inHandlers(s consumer.Stats) string {
	switch {
	case s.Pool.Live == 1:
		return "its only worker is in a handler"
	case s.Pool.Busy < s.Pool.Live:
		return fmt.Sprintf("%d of %d workers are in handlers", s.Pool.Busy, s.Pool.Live)
	}
	return fmt.Sprintf("all %d workers are in handlers", s.Pool.Live)
}

func messages(n int64) string {
	if n == 1 {
		return "1 message waits"
	}
	return counted(n) + " wait"
}

func are(n int64) string {
	if n == 1 {
		return "1 message is"
	}
	return counted(n) + " are"
}

func counted(n int64) string {
	if n == 1 {
		return "1 message"
	}
	return chart.Whole(n) + " messages"
}

// capital begins a sentence.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// duration writes a time with about two digits.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 100*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}
