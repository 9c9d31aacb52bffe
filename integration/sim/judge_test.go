package sim

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestGivenUpWhileFrozen: what a process was called with when it stood still counts its time from then on, as the engine
// does. So a message may be given up by its time, though its runs begin and end at the thaw.
func TestGivenUpWhileFrozen(t *testing.T) {
	thaw := time.Now()
	for _, c := range []struct {
		stood time.Duration
		found int
	}{{0, 1}, {6 * time.Second, 0}} {
		r := &run{book: newBook(), schedule: Schedule{Settings: Settings{
			Attempts: 4, GiveUp: Span(1200 * time.Millisecond), Timeout: Span(300 * time.Millisecond), Lease: Span(2 * time.Second),
		}}}
		r.book.letters[0] = 1
		for range 2 {
			r.book.entries = append(r.book.entries, &entry{
				called: thaw.Add(-c.stood), began: thaw, ended: thaw, stood: c.stood > 0, failed: true,
			})
		}
		if r.judgeAttempts(); len(r.book.findings) != c.found {
			t.Errorf("called %v before the thaw: %d findings, want %d: %v", c.stood, len(r.book.findings), c.found, r.book.findings)
		}
	}
}

// TestOverlapWithThawed: who stands still does not hear that its partition is another's. In the instant of its thaw the broker gives
// its partition away, for it was silent too long, and the other one begins before it has heard of that: no mistake of either.
func TestOverlapWithThawed(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		other *process
		found int
	}{
		"never stood still":            {&process{}, 1},
		"stands still":                 {&process{thawed: make(chan struct{})}, 0},
		"was thawed in that instant":   {&process{thawedAt: now}, 0},
		"was thawed long ago":          {&process{thawedAt: now.Add(-time.Minute)}, 1},
		"stands still a second time":   {&process{thawed: make(chan struct{}), thawedAt: now.Add(-time.Minute)}, 0},
		"its claim has ended, we know": {&process{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{book: newBook(), ordered: true}
			claim, keeper := broker.NewClaim("in", 0, nil)
			if name == "its claim has ended, we know" {
				keeper.End(nil)
			}
			r.judgeOverlap(&entry{process: &process{}}, &entry{process: c.other, claim: claim})
			if len(r.book.findings) != c.found {
				t.Errorf("%d findings, want %d: %v", len(r.book.findings), c.found, r.book.findings)
			}
		})
	}
}

// TestNackedLate: a message is handled by two processes in no trouble. That is no mistake of theirs only where a nack came to the
// broker with the end of a cut, during which the first of them was given it, and before the other was.
func TestNackedLate(t *testing.T) {
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	for name, c := range map[string]struct {
		heard         float64 // 0: never
		holds         bool
		first, second float64 // given
		found         int
	}{
		"with the end of the cut":                     {5, true, 4, 6, 0},
		"never":                                       {0, true, 4, 6, 1},
		"during the cut":                              {3, true, 4, 6, 1},
		"long after the cut":                          {5.5, true, 4, 6, 1},
		"what was cut off is lost":                    {5, false, 4, 6, 1},
		"both had it by then":                         {5, true, 3, 4, 1},
		"the first one had it before that cut":        {5, true, 1, 6, 1},
		"both were given it afterwards, out of stock": {5, true, 6, 6, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{book: newBook(), schedule: Schedule{Settings: Settings{Lease: Span(2 * time.Second)}}, nacks: map[int][]time.Time{}}
			if c.heard > 0 {
				r.nacks[0] = []time.Time{at(c.heard)}
			}
			cut := &process{run: r, name: "cut"}
			r.book.trouble(trouble{process: cut, message: -1, from: at(2), until: at(5), holds: c.holds})
			var es []*entry
			for name, given := range map[string]float64{"first": c.first, "second": c.second} {
				p := &process{run: r, name: name, events: &events{}}
				r.book.had[had{0, p}] = []time.Time{at(given)}
				es = append(es, &entry{process: p, began: at(given), ended: at(given + 0.1)})
			}
			if r.judgeRepeat(0, es[0], es[1]); len(r.book.findings) != c.found {
				t.Errorf("%d findings, want %d: %v", len(r.book.findings), c.found, r.book.findings)
			}
		})
	}
}

// TestGuessedNacks: where the broker tells of no nacks, one may have come with the end of a cut, but only of a process that had
// the message.
func TestGuessedNacks(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for name, c := range map[string]struct {
		had, shared bool
		found       int
	}{
		"who was cut off had it":     {true, true, 0},
		"who was cut off had it not": {false, true, 1},
		"nobody shares":              {true, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{
				kind: Kind{Shared: c.shared}, book: newBook(), nacks: map[int][]time.Time{},
				schedule: Schedule{Settings: Settings{Lease: Span(2 * time.Second)}},
			}
			cut := &process{run: r, name: "cut"}
			r.book.trouble(trouble{process: cut, message: -1, from: at(12), until: at(15), holds: true})
			if c.had {
				r.book.had[had{0, cut}] = []time.Time{at(11)}
			}
			var es []*entry
			for i, name := range []string{"first", "second"} {
				p := &process{run: r, name: name, events: &events{}}
				r.book.had[had{0, p}] = []time.Time{at(14 + i)}
				es = append(es, &entry{process: p, began: at(14 + i), ended: at(14 + i)})
			}
			r.hearNacks()
			if r.judgeRepeat(0, es[0], es[1]); len(r.book.findings) != c.found {
				t.Errorf("%d findings, want %d: %v", len(r.book.findings), c.found, r.book.findings)
			}
		})
	}
}
