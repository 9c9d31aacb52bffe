package page

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/pool"
	"pgregory.net/rapid"
)

// TestRing: it keeps the latest, in their order, whatever its size.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, n := rapid.IntRange(1, 9).Draw(t, "most"), rapid.IntRange(0, 40).Draw(t, "n")
		r, model := newRing[int](most), []int{}
		for i := range n {
			r.add(i)
			model = append(model, i)
		}
		model = model[max(0, n-most):]
		if got := r.all(); !slices.Equal(got, model) {
			t.Fatalf("all %v, want %v", got, model)
		}
		slices.Reverse(model)
		few := rapid.IntRange(0, 12).Draw(t, "few")
		if got := r.newest(few); !slices.Equal(got, model[:min(few, len(model))]) {
			t.Fatalf("newest %v of %v", got, model)
		}
	})
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stats are figures of a moment.
func stats(handled, failed, lag int64, live int) consumer.Stats {
	return consumer.Stats{State: consumer.Running, Handled: handled, Failed: failed, InFlight: int64(live), Claims: 1,
		Lag: broker.Lag{Waiting: lag}, Pool: pool.Stats{Live: live, Busy: live, Max: 8}}
}

// TestHistory: rates are of what lies between two looks; a day is kept by the minute, with the most of each.
func TestHistory(t *testing.T) {
	h := newHistory()
	const hours = 25
	for i := range int64(hours * 3600) {
		lag := i % 60 // so the most of a minute is 59
		if i%3 == 0 {
			lag = -1
		}
		h.add(noon.Add(time.Duration(i)*time.Second), stats(10*i, i, lag, 3), math.NaN(), 7)
	}
	end := noon.Add(hours * time.Hour)
	for _, s := range spans {
		cols := h.columns(s, end)
		if most := int(s.length/s.column) + 1; len(cols) > most || len(cols) < most-2 {
			t.Errorf("%s: %d columns, want about %d", s.Name, len(cols), most)
		}
		for i, x := range cols {
			if math.Abs(x.handled-10) > 1e-9 || math.Abs(x.failed-1) > 1e-9 || math.Abs(x.settled-10) > 1e-9 || x.live != 3 ||
				x.limit != 8 || !math.IsNaN(x.p50) || x.p99 != 7 {
				t.Fatalf("%s: column %d is %+v", s.Name, i, x)
			}
			if i > 0 && !x.at.After(cols[i-1].at) || x.at.Before(end.Add(-s.length)) {
				t.Fatalf("%s: column %d is at %v", s.Name, i, x.at)
			}
		}
	}
	for _, x := range h.columns(spanOf("24h"), end)[1:200] {
		if x.lag != 59 {
			t.Fatalf("five minutes have the lag %v, want the most of them", x.lag)
		}
	}
	if got := spanOf("nonsense"); got.Name != spans[0].Name {
		t.Errorf("%+v", got)
	}
}

// TestHistoryOfTheLastMinutes: a column of the day that has whole minutes, and seconds of the one at hand, has the mean of its
// time. Each second counted as much as a minute.
func TestHistoryOfTheLastMinutes(t *testing.T) {
	h, handled := newHistory(), int64(0)
	for i := range int64(4*60 + 31) {
		if i > 4*60 { // nothing before, and then 300 in a second
			handled += 300
		}
		h.add(noon.Add(time.Duration(i)*time.Second), stats(handled, 0, 0, 1), math.NaN(), math.NaN())
	}
	cols := h.columns(spanOf("24h"), noon.Add(4*time.Minute+30*time.Second))
	if want := 300.0 * 30 / 270; len(cols) != 1 || math.Abs(cols[0].handled-want) > 0.01 {
		t.Errorf("%+v, want %.2f a second", cols, want)
	}
}

// TestGlance: is it keeping up, in a sentence.
func TestGlance(t *testing.T) {
	series := func(of sample, from, step float64) (list []sample) {
		for i := range 20 {
			of.at, of.lag = noon.Add(time.Duration(i)*time.Second), from+step*float64(i)
			list = append(list, of)
		}
		return list
	}
	works := sample{handled: 100, settled: 100}
	fails := sample{failed: 130, settled: 43} // each message has three runs, and is dead-lettered
	refused := sample{handled: 2, failed: 3}  // some do
	skips := sample{settled: 100}             // its handlers skip them all
	few := sample{failed: 3, handled: 2, skipped: 95, settled: 97}
	most := sample{failed: 300, handled: 2, skipped: 95, settled: 97}
	hangs := sample{busy: 8, live: 8} // no handler returns
	tried := series(hangs, 5000, 0)   // but for one run that failed, of a message that is retried
	tried[7].failed = 1
	full := works // a minute of work is here, and nothing at the broker
	full.handled, full.settled, full.queued = 4, 4, 272
	queued := stats(0, 0, 0, 8)
	queued.Pool.Backlog = 272
	burst := series(works, 5000, -100) // published 8 s ago, at once
	for i := range burst[:12] {
		burst[i].lag = 0
	}
	begun := series(hangs, 0, 0) // there was nothing to do until 3 s ago
	for i := range begun[:17] {
		begun[i].busy, begun[i].live = 0, 1
	}
	busy := stats(0, 0, 5000, 8)
	idle := stats(0, 0, 5000, 3)
	idle.Pool.Busy = 1
	paused, stopping, unknown, last, here := busy, busy, busy, busy, busy
	paused.Paused, stopping.State, unknown.Lag.Waiting = true, consumer.Draining, -1
	last.State, last.InFlight = consumer.Cancelling, 1
	here.Lag.Waiting, here.Pool.Backlog, here.InFlight = 0, 51, 59
	for _, c := range []struct {
		stats  consumer.Stats
		ready  bool
		latest []sample
		level  string
		text   string
	}{
		{stats(0, 0, 0, 1), true, series(works, 0, 0), "good", "It keeps up: 0 messages wait at the broker."},
		{stats(0, 0, 1, 1), true, nil, "good", "It keeps up: 1 message waits at the broker."},
		{busy, true, series(works, 6900, -100), "good",
			"It catches up: 5,000 messages wait at the broker, 100 fewer a second, about 50s to go."},
		{busy, true, series(works, 1000, 50), "bad", "It falls behind: 5,000 messages wait at the broker, 50 more a second. All 8 " +
			"workers are busy, which is as many as it may have."},
		{idle, true, series(works, 5000, 0), "warn",
			"It holds its distance: 5,000 messages wait at the broker. Not all workers are busy."},
		{busy, true, series(skips, 5000, 0), "warn",
			"It holds its distance: 5,000 messages wait at the broker. All 8 workers are busy, which is as many as it may have."},
		{stats(0, 0, 0, 9), true, series(fails, 0, 0), "bad",
			"Most runs fail: 130 a second, and 0 messages a second are handled or skipped. 0 messages wait at the broker."},
		{idle, true, series(refused, 5000, 0), "bad",
			"Most runs fail: 3 a second, and 2 messages a second are handled or skipped. 5,000 messages wait at the broker."},
		{idle, true, series(few, 5000, 0), "warn",
			"It holds its distance: 5,000 messages wait at the broker. Not all workers are busy."},
		{idle, true, series(most, 5000, 0), "bad",
			"Most runs fail: 300 a second, and 97 messages a second are handled or skipped. 5,000 messages wait at the broker."},
		{busy, true, series(hangs, 5000, 0), "warn",
			"Nothing was finished for 20 s, and all 8 workers are in handlers. 5,000 messages wait at the broker."},
		{stats(0, 0, 5000, 1), true, series(hangs, 5000, 0), "warn",
			"Nothing was finished for 20 s, and its only worker is in a handler. 5,000 messages wait at the broker."},
		{busy, true, tried, "warn", "Nothing was finished for 20 s, and all 8 workers are in handlers. 5,000 messages wait at the " +
			"broker."},
		{busy, true, series(hangs, 1000, 50), "bad",
			"Nothing was finished for 20 s, and all 8 workers are in handlers. 5,000 messages wait at the broker, 50 more a second."},
		{here, true, series(hangs, 0, 0), "warn",
			"Nothing was finished for 20 s, and all 8 workers are in handlers. 0 messages wait at the broker, and 51 here."},
		{queued, true, series(full, 0, 0), "warn", "It holds its distance: 0 messages wait at the broker, and 272 here. All 8 " +
			"workers are busy, which is as many as it may have."},
		{stats(0, 0, 3100, 8), true, burst, "good",
			"It catches up: 3,100 messages wait at the broker, 100 fewer a second, about 31s to go."},
		{stats(0, 0, 2, 1), true, begun, "good", "It keeps up: 2 messages wait at the broker."},
		{busy, true, series(hangs, 5000, 0)[:10], "warn",
			"It holds its distance: 5,000 messages wait at the broker. All 8 workers are busy, which is as many as it may have."},
		{idle, true, series(hangs, 5000, 0), "warn",
			"It holds its distance: 5,000 messages wait at the broker. Not all workers are busy."},
		{paused, true, nil, "warn", "It is paused and takes no messages: 5,000 messages wait at the broker."},
		{stopping, true, nil, "warn", "It is draining, with 8 messages in hand."},
		{last, true, nil, "warn", "It is cancelling, with 1 message in hand."},
		{busy, false, nil, "bad", "It has no contact with its broker."},
		{unknown, true, nil, "warn", "How much waits at the broker is not known yet."},
	} {
		if got := glance(look{stats: c.stats, ready: c.ready, latest: c.latest}); got.Level != c.level || got.Text != c.text {
			t.Errorf("%+v, want %s %q", got, c.level, c.text)
		}
	}
}

// TestGlanceInHand: what waits in the process for something else than a worker is no less of a backlog, and it is said what for.
func TestGlanceInHand(t *testing.T) {
	series := func(of sample, step float64) (list []sample) {
		for i := range trendSeconds {
			of.at, of.kept = noon.Add(time.Duration(i)*time.Second), of.kept+step
			list = append(list, of)
		}
		return list
	}
	with := func(lag int64, change func(*consumer.Stats)) consumer.Stats {
		s := stats(0, 0, lag, 1)
		change(&s)
		return s
	}
	slow := sample{handled: 5, settled: 5, live: 1, kept: 1377}
	hangs := sample{busy: 1, live: 1, kept: 190, queued: 97}
	limited := with(0, func(s *consumer.Stats) {
		s.Parked, s.PutOff, s.AtLimit, s.InFlight, s.Pool.Busy = 1577, 1577, 1577, 1578, 0
	})
	own := with(0, func(s *consumer.Stats) {
		s.Parked, s.PutOff, s.AtLimit, s.InFlight, s.Pool.Busy = 1577, 1577, 7, 1578, 0
	})
	mixed := with(7, func(s *consumer.Stats) { s.Parked, s.PutOff, s.AtLimit, s.InFlight = 1600, 1577, 1577, 1601 })
	retries := with(0, func(s *consumer.Stats) { s.Parked, s.InFlight = 50, 50 })
	few := with(0, func(s *consumer.Stats) { s.Parked, s.InFlight = 3, 4 })
	unknown := with(-1, func(s *consumer.Stats) { s.Parked, s.InFlight = 50, 50 })
	lane := with(900, func(s *consumer.Stats) { s.Waiting, s.Pool.Backlog, s.InFlight, s.FullLanes = 190, 97, 288, 0 })
	full := with(900, func(s *consumer.Stats) {
		s.Waiting, s.InFlight, s.FullLanes, s.Pool.Live = 250, 251, 1, 2
		s.Pool.Busy = 1
	})
	parked := with(900, func(s *consumer.Stats) {
		s.Waiting, s.InFlight, s.FullLanes, s.Parked, s.Pool.Busy = 500, 502, 2, 2, 0
	})
	taken := with(900, func(s *consumer.Stats) { s.Lag.Full, s.Lag.Unsettled, s.InFlight, s.Pool.Busy = true, 950, 0, 0 })
	busy := taken
	busy.Pool.Busy = 1
	const old, oldSays = 26 * time.Minute, " The oldest message here is 26m0s old."
	for _, c := range []struct {
		look
		level, text string
	}{
		{look{stats: limited, limits: []string{"slow"}, oldest: old, latest: series(slow, 10)}, "bad",
			"It falls behind: 0 messages wait at the broker, and 1,577 here until a limit lets them through, 10 more a second. Most of " +
				"what is here waits for a limit: slow." + oldSays},
		{look{stats: own, limits: []string{"slow"}, latest: series(slow, 0)}, "warn",
			"It holds its distance: 0 messages wait at the broker, 7 here until a limit lets them through, and 1,570 here until the " +
				"time that they were put off to. Most of what is here was put off by its handler."},
		{look{stats: limited, latest: series(slow, 0)}, "warn",
			"It holds its distance: 0 messages wait at the broker, and 1,577 here until a limit lets them through. " +
				"Most of what is here was put off by its handler."},
		{look{stats: mixed, limits: []string{"a", "b"}, latest: series(slow, 0)}, "warn", "It holds its distance: 7 messages wait at " +
			"the broker, 1,577 here until a limit lets them through, and 23 here for their next attempt. Most of what is here waits " +
			"for a limit: a, b."},
		{look{stats: retries, latest: series(sample{kept: 50, live: 1}, 0)}, "warn", "It holds its distance: 0 messages wait at the " +
			"broker, and 50 here for their next attempt. Most of what is here has failed and waits for its next attempt."},
		{look{stats: few, latest: series(sample{kept: 3, live: 1}, 0)}, "good",
			"It keeps up: 0 messages wait at the broker, and 3 here for their next attempt."},
		{look{stats: unknown}, "warn", "It holds its distance: an unknown number of messages waits at the broker, and 50 here for " +
			"their next attempt. Most of what is here has failed and waits for its next attempt."},
		{look{stats: lane, latest: series(hangs, 0)}, "warn",
			"Nothing was finished for 20 s, and its only worker is in a handler. 900 messages wait at the broker, 97 here, and 190 " +
				"here behind others in their order. Most of what is here waits for the message before it in its order, and more " +
				"workers do not help."},
		{look{stats: full, oldest: old, latest: series(sample{busy: 1, live: 2, kept: 250}, 0)}, "warn", "Nothing was finished for " +
			"20 s, and 1 of 2 workers are in handlers. 900 messages wait at the broker, and 250 here behind others in their order. A " +
			"lane is full: what it is of takes in nothing more until the message at its head is done." + oldSays},
		{look{stats: parked, latest: series(sample{live: 1, kept: 502}, 0)}, "warn",
			"It holds its distance: 900 messages wait at the broker, 500 here behind others in their order, and 2 here for " +
				"their next attempt. 2 lanes are full: what they are of takes in nothing more until the messages at their heads are done."},
		{look{stats: taken, latest: series(sample{live: 1, lag: 900}, 0)}, "warn",
			"It holds its distance: 900 messages wait at the broker. " +
				"50 messages are delivered and not settled, those included that the broker keeps for their next attempt: as many as may be " +
				"(max_ack_pending)."},
		{look{stats: busy, latest: series(sample{live: 1, lag: 900}, 0)}, "warn",
			"It holds its distance: 900 messages wait at the broker. All workers are busy."},
	} {
		c.ready = true
		if got := glance(c.look); got.Level != c.level || got.Text != c.text {
			t.Errorf("%+v, want %s %q", got, c.level, c.text)
		}
	}
}

// TestGlanceIsOfNow: that runs failed is not said any more when those of now do not.
func TestGlanceIsOfNow(t *testing.T) {
	var latest []sample
	for i := range trendSeconds {
		latest = append(latest, sample{at: noon.Add(time.Duration(i) * time.Second), failed: 50, live: 1})
	}
	l := look{stats: stats(0, 0, 0, 1), ready: true, latest: latest}
	if got := glance(l); got.Level != "bad" || !strings.HasPrefix(got.Text, "Most runs fail: 50 a second") {
		t.Errorf("%+v", got)
	}
	for i := range latest[15:] {
		latest[15+i].failed, latest[15+i].handled, latest[15+i].settled = 0, 3, 3
	}
	if got := glance(l); got != (Glance{"good", "It keeps up: 0 messages wait at the broker."}) {
		t.Errorf("%+v", got)
	}
}

// TestHistorySkipped: what is skipped is no failure, from the figures on, and in a minute.
func TestHistorySkipped(t *testing.T) {
	h := newHistory()
	for i := range int64(3 * 60) {
		s := stats(0, 3*i, 0, 1)
		s.Skipped = 95 * i
		h.add(noon.Add(time.Duration(i)*time.Second), s, math.NaN(), math.NaN())
	}
	for _, x := range append(h.columns(spanOf("24h"), noon.Add(3*time.Minute)), h.latest(1)...) {
		if math.Abs(x.skipped-95) > 1e-9 || math.Abs(x.failed-3) > 1e-9 {
			t.Errorf("%+v", x)
		}
	}
	if got := glance(look{stats: stats(0, 0, 0, 1), ready: true, latest: h.latest(trendSeconds)}); got.Level != "good" {
		t.Errorf("%+v", got)
	}
}

// TestGlanceStandsBy: a process whose messages are all others' does not keep up with anything.
func TestGlanceStandsBy(t *testing.T) {
	for _, lag := range []int64{0, -1} {
		s := stats(0, 0, lag, 1)
		s.Claims, s.InFlight = 0, 0
		want := Glance{"good", "It stands by: other processes have all that it reads."}
		if got := glance(look{stats: s, ready: true}); got != want {
			t.Errorf("lag %d: %+v", lag, got)
		}
		s.InFlight = 1
		if got := glance(look{stats: s, ready: true}); got == want {
			t.Errorf("one is still in hand: %+v", got)
		}
	}
}

// TestOpen: a circuit breaker that is not closed is said before what follows from it, and after what stands above it.
func TestOpen(t *testing.T) {
	shut := fakeBreaker{}
	later := fakeBreaker{noon.Add(3 * time.Minute)}
	open := brokenOf(map[string]admin.Breaker{"stock": shut, "bills": fakeBreaker{noon}, "mails": later}, noon.Add(5*time.Minute))
	const text = "The circuit breakers bills (for 5m0s) and mails (for 2m0s) are open: what its handlers call fails."
	if open != text {
		t.Errorf("%q, want %q", open, text)
	}
	if got := brokenOf(map[string]admin.Breaker{"stock": shut}, noon); got != "" {
		t.Errorf("%q", got)
	}
	hangs := slices.Repeat([]sample{{busy: 8, live: 8, lag: 5000}}, 20)
	l := look{stats: stats(0, 0, 5000, 8), ready: true, broken: open, latest: hangs}
	if got := glance(l); got != (Glance{"bad", text + " 5,000 messages wait at the broker."}) {
		t.Errorf("%+v", got)
	}
	l.ready = false
	if got := glance(l); got.Text != "It has no contact with its broker." {
		t.Errorf("%+v", got)
	}
}

// TestSourceSays: who waits for a stream says what for, as long as it waits.
func TestSourceSays(t *testing.T) {
	w := newWatched("orders", Sources{})
	w.serve(&served{target: fakeTarget{}})
	tell := func(kind broker.Kind, text string) {
		w.diary.observe(consumer.SourceEvent{Event: broker.Event{Kind: kind, Err: errors.New(text)}}, noon)
	}
	opening, running := stats(0, 0, -1, 1), stats(0, 0, -1, 1)
	opening.State, opening.InFlight = consumer.Opening, 0
	if got := w.glance(opening, nil, noon); got.Text != "It is opening." {
		t.Errorf("%+v", got)
	}
	tell(broker.Warning, "there is no stream ORDERS\u202e")
	tell(broker.Notice, "no matter")
	const says = ` Its source said: there is no stream ORDERS\u202e`
	if got := w.glance(opening, nil, noon); got != (Glance{"warn", "It is opening." + says}) {
		t.Errorf("%+v", got)
	}
	if got := w.glance(running, nil, noon); got != (Glance{"bad", "It has no contact with its broker." + says}) {
		t.Errorf("%+v", got)
	}
	w.serve(&served{target: fakeTarget{ready: true}})
	if got := w.glance(running, nil, noon); strings.Contains(got.Text, "ORDERS") {
		t.Errorf("%+v", got)
	}
}

// fakeTarget is ready, or not.
type fakeTarget struct {
	admin.Target
	ready bool
}

func (f fakeTarget) Ready() bool { return f.ready }

// fakeBreaker is open since then, or closed.
type fakeBreaker struct{ since time.Time }

func (b fakeBreaker) State() string        { return "open" }
func (b fakeBreaker) OpenSince() time.Time { return b.since }

// TestStalled: a partition that one message holds up is said.
func TestStalled(t *testing.T) {
	claims := []consumer.ClaimStatus{{Topic: "orders", Partition: 0, Window: 1}, {Topic: "orders", Partition: 1, Window: 0.99},
		{Window: -1}}
	want := []string{"orders 0 takes in nothing more until its oldest message is settled: its window is full."}
	if got := stalled(claims); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOldLagShows: a lag of a broker that is away for long is said to be an old one.
func TestOldLagShows(t *testing.T) {
	for _, c := range []struct {
		lag  broker.Lag
		want string
	}{
		{broker.Lag{Waiting: 3, At: noon.Add(-5 * time.Second)}, ""},
		{broker.Lag{Waiting: 0, At: noon.Add(-3 * time.Minute)}, "3m0s ago"},
		{broker.UnknownLag(), ""},
	} {
		if got := oldLag(c.lag, noon); got != c.want {
			t.Errorf("%+v: %q, want %q", c.lag, got, c.want)
		}
	}
}

// TestDelayedLettersShow: dead letters that cannot be stored are told, and none are not.
func TestDelayedLettersShow(t *testing.T) {
	if got := delayed(consumer.Stats{DeadLettered: 9}); got != nil {
		t.Errorf("all are stored: %q", got)
	}
	if got := delayed(consumer.Stats{LettersDelayed: 1200}); len(got) != 1 ||
		!strings.HasPrefix(got[0], "Dead letters that could not be stored so far: 1,200. ") {
		t.Errorf("told %q", got)
	}
}

// TestDiary: failures beyond what a second may have are passed over; the next second has its own.
func TestDiary(t *testing.T) {
	d := newDiary()
	for i := range 50 {
		d.observe(consumer.Failed{Message: &consumer.Message{Offset: int64(i)}, Err: fmt.Errorf("no %d", i), Class: "error"},
			noon.Add(time.Duration(i)*time.Millisecond))
	}
	d.observe(consumer.Failed{Message: &consumer.Message{Offset: 99}, Class: "error"}, noon.Add(time.Second))
	d.observe(consumer.Scaled{Decision: pool.Decision{At: noon, From: 1, Target: 2}}, noon.Add(time.Second))
	decisions, failures := d.newest(10, 100)
	if len(failures) != failuresASecond+1 || failures[0].Offset != 99 || failures[1].Offset != failuresASecond-1 {
		t.Errorf("%d failures, the first %+v", len(failures), failures[0])
	}
	if len(decisions) != 1 || decisions[0].To != 2 || !decisions[0].At.Equal(noon) {
		t.Errorf("%+v", decisions)
	}
}

// TestSessions: a session ends with its time, with the logout, and with too many others.
func TestSessions(t *testing.T) {
	s := newSessions("0123456789abcdef")
	if _, ok := s.login("0123456789abcdeX", noon); ok {
		t.Error("a wrong token")
	}
	first, ok := s.login("0123456789abcdef", noon)
	if !ok {
		t.Fatal("the right token")
	}
	if !s.has(with(first), noon.Add(sessionLength-time.Second)) || s.has(with(first), noon.Add(sessionLength)) ||
		s.has(with(first+"x"), noon) || s.has(with(""), noon) {
		t.Error("a session does not hold as long as it should")
	}
	second, _ := s.login("0123456789abcdef", noon.Add(time.Second))
	s.logout(with(second))
	if s.has(with(second), noon.Add(time.Second)) || !s.has(with(first), noon.Add(time.Second)) {
		t.Error("the logout ended the wrong one, or none")
	}
	for i := range mostSessions {
		s.login("0123456789abcdef", noon.Add(time.Duration(i+2)*time.Second))
	}
	if len(s.end) > mostSessions || s.has(with(first), noon.Add(time.Minute)) {
		t.Errorf("%d sessions, and the oldest is one of them", len(s.end))
	}
	if none := newSessions(""); func() bool { _, ok := none.login("", noon); return ok }() {
		t.Error("logged in where there is no token")
	}
}

// TestEditable: what comes back from a form as it was sent there.
func TestEditable(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "a\nb\n": true, "a\r\nb\r\n": true, "a\rb": false, "a\r\nb\n": false, "\xff": false, "a\x00": false,
		"a\u202eb": false, "a\x1b[0m": false, "ä\t€": true,
	} {
		if got := editable([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, was := range []string{"a\nb", "a\r\nb", "\n", "\r\n"} {
		sent := ""
		for _, r := range was { // a browser sends each line's end as two
			if r == '\n' {
				sent += "\r\n"
			} else if r != '\r' {
				sent += string(r)
			}
		}
		if got := fromForm(sent, []byte(was)); string(got) != was {
			t.Errorf("%q came back as %q", was, got)
		}
	}
}

// FuzzReadEvent: a line of the log, or anything.
func FuzzReadEvent(f *testing.F) {
	f.Add([]byte(`{"level":"warn","consumer":"orders","event":"failed","offset":17,"error":"no \u202e"}` + "\n"))
	f.Add([]byte(`{"event":"scaled","from":1,"nested":{"a":[1,2]}}`))
	f.Add([]byte(`{"event":`))
	f.Add([]byte(`nothing`))
	f.Add([]byte(`{"` + strings.Repeat("\xff", 2000) + `":1}`)) // three bytes each, once it is read
	f.Fuzz(func(t *testing.T, line []byte) {
		e := readEvent(line)
		if len(e.Text) > lineBytes+len("…") {
			t.Errorf("%d bytes of %d", len(e.Text), len(line))
		}
		for _, field := range []string{e.Level, e.Consumer, e.Name} {
			if len(field) > fieldBytes+len("…") {
				t.Errorf("%d bytes of a field", len(field))
			}
		}
	})
}

// FuzzReadCursor: what is read is what was written.
func FuzzReadCursor(f *testing.F) {
	f.Add("1:2:3")
	f.Add("-1:-1:9223372036854775807")
	f.Add("1:2")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := readCursor(text)
		if err != nil || c == nil {
			return
		}
		if again, err := readCursor(c.String()); err != nil || *again != *c {
			t.Errorf("%q: %+v, %+v, %v", text, c, again, err)
		}
	})
}

// FuzzPlain: what is shown has no character that is not printed as itself, and is no longer than it may be.
func FuzzPlain(f *testing.F) {
	f.Add("a\u202eb\x00\xff\n", 5)
	f.Add("\u0085\u2028\u00ad\U000e0001\ufffd\xe2\x80", 500)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(0, most%1000)
		for _, r := range plain(text, most) {
			if !strconv.IsPrint(r) {
				t.Fatalf("%q has %q", plain(text, most), r)
			}
		}
		if got := cut(text, most); len(got) > most+len("…") {
			t.Errorf("%q cut to %d is %q", text, most, got)
		}
	})
}
