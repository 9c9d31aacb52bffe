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
	steps []step // the oldest first; those that had calls
}

// A step is a tenth of a window.
type step struct {
	at time.Time
	counts
}

// longestReach bounds how far back a tally reaches beyond its window.
const longestReach = 24 * time.Hour

func (t *tally) clear() { t.all, t.row, t.steps = counts{}, 0, t.steps[:0] }

// add counts a call that ends now. each is how long a call takes for each of those that are under way: where so long, least of
// them could not end within the window, it reaches back further. A tally that counts from the beginning of calls, or no further
// than its window, sees nothing where all hang until a timeout that is longer, or where few workers do.
func (t *tally) add(now time.Time, r result, each time.Duration) {
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
		t.row = 0
	case failed:
		t.row++
	}
}

// tripped says whether too many failed. Least in a row are too many, whatever came before: until the failures are half of a busy
// window, the first messages of an outage have used up their attempts. And however far apart: where little comes, the failures of
// a window are those of one message, and never enough. What refuses some calls works; what refuses all does not.
func (t *tally) tripped() bool {
	if t.row >= t.least {
		return true
	}
	bad := t.all[failed]
	if t.all[succeeded] == 0 {
		bad += t.all[refused]
	}
	calls := t.all[succeeded] + bad
	return calls >= t.least && float64(bad) >= t.rate*float64(calls)
}
