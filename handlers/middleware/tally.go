package middleware

import "time"

// A result is what a call says about what it calls; what comes later here is worse.
type result int

const (
	tellsNothing result = iota
	succeeded
	refused // it has enough to do
	failed
)

// counts are calls by their result.
type counts [failed + 1]int

// A tally counts calls by when they ended, and says whether too many failed. Not safe for concurrent use.
type tally struct {
	window time.Duration
	least  int     // calls that tell something
	rate   float64 // of failures, at which it trips

	all   counts
	row   int    // failures since the last success, however long ago
	shut  shut   // failures and refusals since then
	steps []step // the oldest first; those that had calls
}

// A step is a tenth of a window.
type step struct {
	at time.Time
	counts
}

// A shut counts the calls of what lets none through.
type shut struct {
	calls int
	since time.Time     // the first of them
	after time.Duration // the longest wait that they asked for
}

const (
	minShut = time.Second // is how long all has to be refused to be a failure
	unusual = 10          // times as many calls in a row as usual, between two successes, have to be refused
)

// longestReach bounds how far back a tally reaches beyond its window.
const longestReach = 24 * time.Hour

func (t *tally) clear() { t.all, t.row, t.shut, t.steps = counts{}, 0, shut{}, t.steps[:0] }

// add counts a call that ends now, and asks to wait for after where it was refused. each is how long a call takes for each of
// those that are under way: where so long, least of them could not end within the window, it reaches back further. A tally that
// counts from the beginning of calls, or no further than its window, sees nothing where all hang until a timeout that is longer,
// or where few workers do.
func (t *tally) add(now time.Time, r result, each, after time.Duration) {
	reach := max(t.window, time.Duration(min(2*float64(t.least)*float64(each), float64(longestReach))))
	old := 0
	for old < len(t.steps) && now.Sub(t.steps[old].at) >= reach {
		for r, n := range t.steps[old].counts {
			t.all[r] -= n
		}
		old++
	}
	t.steps = append(t.steps[:0], t.steps[old:]...)
	if n := len(t.steps); n == 0 || now.Sub(t.steps[n-1].at) >= t.window/10 {
		t.steps = append(t.steps, step{at: now})
	}
	t.steps[len(t.steps)-1].counts[r]++
	t.all[r]++
	switch r {
	case succeeded:
		t.row, t.shut = 0, shut{}
		return
	case failed:
		t.row++
	}
	if t.shut.calls++; t.shut.calls == 1 {
		t.shut.since = now
	}
	t.shut.after = max(t.shut.after, after)
}

// tripped says whether too many failed. Least in a row are too many, whatever came before: until the failures are half of a busy
// window, the first messages of an outage have used up their attempts. And however far apart: where little comes, the failures of
// a window are those of one message, and never enough. What refuses some calls works; what refuses all does not.
func (t *tally) tripped(now time.Time) bool {
	bad := t.all[failed]
	calls := t.all[succeeded] + bad
	return t.row >= t.least || t.refusesAll(now) || calls >= t.least && float64(bad) >= t.rate*float64(calls)
}

// refusesAll says whether no call gets through any more. A rate limit, too, refuses many between two successes: but about as many
// each time, and not all for as long as it asks to wait. And it refuses at once, while the calls that it lets through take their
// time.
func (t *tally) refusesAll(now time.Time) bool {
	if t.shut.calls < t.least || now.Sub(t.shut.since) < max(minShut, min(t.shut.after, t.window)) {
		return false
	}
	before := max(0, t.all[refused]+t.all[failed]-t.shut.calls)
	return t.shut.calls*max(1, t.all[succeeded]) >= unusual*before
}
