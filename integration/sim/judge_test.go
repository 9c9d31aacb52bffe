package sim

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/integration/ledger"
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

// TestOverlapWithThawed: who stands still does not hear that its partition is another's. In the instant of its thaw the broker
// gives its partition away, for it was silent too long, and the other one begins before it has heard of that: no mistake of
// either.
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

// TestUnconfirmedWhenMadeAnew: a message is handled twice without any trouble. That is no mistake only where its topic was made
// anew just before, and the process that lost its claim by that has told that its settles are unconfirmed.
func TestUnconfirmedWhenMadeAnew(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for name, c := range map[string]struct {
		anew  string // the topic that was made anew
		when  int    // the message is handled at 10, and again at 20
		told  int    // 0: never
		found int
	}{
		"told, and made anew just before": {"in0", 9, 11, 0},
		"never told":                      {"in0", 9, 0, 1},
		"told before it was handled":      {"in0", 9, 9, 1},
		"told after it was handled again": {"in0", 9, 21, 1},
		"made anew long before":           {"in0", 5, 11, 1},
		"made anew afterwards":            {"in0", 11, 12, 1},
		"another one was made anew":       {"in1", 9, 11, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{book: newBook(), schedule: Schedule{Settings: Settings{Lease: Span(2 * time.Second)}}}
			r.book.stored = []stored{{topic: "in0"}}
			r.book.renewals[c.anew] = []time.Time{at(c.when)}
			p := &process{run: r, name: "p", events: &events{}}
			if c.told > 0 {
				p.events.unconfirmed = []time.Time{at(c.told)}
			}
			r.book.had[had{0, p}] = []time.Time{at(10), at(20)}
			before, again := &entry{process: p, began: at(10), ended: at(10)}, &entry{process: p, began: at(20), ended: at(20)}
			if r.judgeRepeat(0, before, again); len(r.book.findings) != c.found {
				t.Errorf("%d findings, want %d: %v", len(r.book.findings), c.found, r.book.findings)
			}
		})
	}
}

// TestSetBackByAnEarlierTopic: a message is handled twice by processes in no trouble. That is no mistake of theirs only where the
// group assigns by heartbeats, and another one was in trouble when its topic was made anew, and until it was handled.
func TestSetBackByAnEarlierTopic(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for name, c := range map[string]struct {
		assigned          bool
		anew, from, until int // the message is handled from 10 to 11, and again at 20
		found             int
	}{
		"it came back after the first one":      {true, 5, 4, 12, 0},
		"the group does not assign":             {false, 5, 4, 12, 1},
		"it came back before":                   {true, 5, 4, 9, 1},
		"it came back after the second one":     {true, 5, 4, 21, 1},
		"it was in trouble afterwards":          {true, 5, 6, 12, 1},
		"made anew after the message was begun": {true, 11, 4, 12, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{book: newBook(), schedule: Schedule{Settings: Settings{Lease: Span(2 * time.Second), Assigned: c.assigned}}}
			r.book.stored = []stored{{topic: "in0"}}
			r.book.renewals["in0"] = []time.Time{at(c.anew)}
			frozen := &process{run: r, name: "frozen"}
			r.book.trouble(trouble{process: frozen, message: -1, from: at(c.from), until: at(c.until)})
			p := &process{run: r, name: "p", events: &events{}}
			r.book.had[had{0, p}] = []time.Time{at(10), at(20)}
			before, again := &entry{process: p, began: at(10), ended: at(11)}, &entry{process: p, began: at(20), ended: at(20)}
			if r.judgeRepeat(0, before, again); len(r.book.findings) != c.found {
				t.Errorf("%d findings, want %d: %v", len(r.book.findings), c.found, r.book.findings)
			}
		})
	}
}

// TestNackedByOneOfTwo: a message is handled by two processes in no trouble. That is no mistake of theirs only where the broker
// had forgotten who has it, gave it to a second one, and one of the two gave it back to a third.
func TestNackedByOneOfTwo(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for name, c := range map[string]struct {
		forgets                     bool
		first, second, heard, third int // given, and when the nack was heard
		found                       int
	}{
		"it forgot, and a nack took it away": {true, 11, 20, 21, 22, 0},
		"it forgot nothing":                  {false, 11, 20, 21, 22, 1},
		"the first had it long before":       {true, 5, 20, 21, 22, 1},
		"the first gave it back":             {true, 11, 20, 19, 22, 1},
		"nobody gave it back":                {true, 11, 20, 0, 22, 1},
		"the nack came too late":             {true, 11, 20, 23, 22, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{
				book: newBook(), nacks: map[int][]time.Time{0: {at(c.heard)}},
				schedule: Schedule{Settings: Settings{Lease: Span(2 * time.Second)}},
			}
			r.book.trouble(trouble{message: -1, from: at(10), until: at(14), forgets: c.forgets})
			var es []*entry
			for i, given := range []int{c.first, c.second, c.third} {
				p := &process{run: r, name: string(rune('a' + i)), events: &events{}}
				r.book.had[had{0, p}] = []time.Time{at(given)}
				es = append(es, &entry{process: p, began: at(given + 20), ended: at(given + 20)})
			}
			if r.judgeRepeat(0, es[1], es[2]); len(r.book.findings) != c.found {
				t.Errorf("%d findings, want %d: %v", len(r.book.findings), c.found, r.book.findings)
			}
		})
	}
}

// TestFailedAfterALateAck: a message fails in the second process that was given it, and what follows it begins there before it
// was tried again. That is no mistake only where the first process had done it, and the claim has ended since, or it was given
// back.
func TestFailedAfterALateAck(t *testing.T) {
	first, second := &process{no: 1}, &process{no: 2}
	before, _ := broker.NewClaim("in", 0, nil)
	since, _ := broker.NewClaim("in", 0, nil)
	for name, c := range map[string]struct {
		first ledger.Outcome
		next  *broker.Claim
		back  bool
		want  bool
	}{
		"done, and the claim has ended":      {ledger.Done, since, false, true},
		"done, under the same claim":         {ledger.Done, before, false, false},
		"done, and given back":               {ledger.Done, before, true, true},
		"cancelled, and the claim has ended": {ledger.Cancelled, since, false, false},
		"cancelled, and given back":          {ledger.Cancelled, before, true, false},
	} {
		b := newBook()
		if c.back {
			b.backs[back{0, before}] = []time.Time{{}}
		}
		failed := &entry{process: second, claim: before, begin: 3, end: 4, outcome: ledger.Failed, lane: "a"}
		b.entries = []*entry{
			{process: first, claim: before, begin: 1, end: 2, outcome: c.first, lane: "a"}, failed,
			{message: 1, process: second, claim: c.next, begin: 5, end: 6, outcome: ledger.Done, lane: "a"},
		}
		if got := b.ackedLate(failed); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
