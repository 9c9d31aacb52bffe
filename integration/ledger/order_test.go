package ledger_test

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/longshoremq/longshore/integration/ledger"
)

// A step of a story: process pid begins or ends a run of message seq, whose key is seq/100 and whose number is seq.
type step struct {
	what string // begin, or how the run ended, or letter
	pid  int
	seq  int64
}

// tell makes runs of a story, one stamp for each step. The end is that of the oldest run of that process and message that is
// under way.
func tell(t *testing.T, story []step) (runs []ledger.Run, letters []ledger.Letter) {
	t.Helper()
	for i, s := range story {
		at := int64(i + 1)
		switch s.what {
		case "begin":
			runs = append(runs, ledger.Run{ID: s.seq, Seq: s.seq, Pid: s.pid, Begin: at})
			continue
		case "letter":
			letters = append(letters, ledger.Letter{Seq: s.seq, Pid: s.pid, At: at})
			continue
		}
		for j := range runs {
			if r := &runs[j]; r.Pid == s.pid && r.Seq == s.seq && r.Outcome == ledger.Running {
				r.End, r.Outcome = at, ledger.Outcome(s.what)
				break
			}
		}
	}
	return runs, letters
}

func TestInspect(t *testing.T) {
	for name, c := range map[string]struct {
		story                []step
		inversions, overlaps int
	}{
		"one after the other": {story: []step{{"begin", 1, 100}, {"done", 1, 100}, {"begin", 1, 101},
			{"done", 1, 101}}},
		"keys beside each other, the later stored first": {story: []step{{"begin", 1, 200}, {"begin", 1, 100}, {"done", 1, 100},
			{"done", 1, 200}}},
		"a retry before the next": {story: []step{{"begin", 1, 100}, {"failed", 1, 100}, {"begin", 1, 100},
			{"done", 1, 100}, {"begin", 1, 101}, {"done", 1, 101}}},
		"the next before a retry": {story: []step{{"begin", 1, 100}, {"failed", 1, 100}, {"begin", 1, 101}, {"done", 1, 101},
			{"begin", 1, 100}, {"done", 1, 100}},
			inversions: 1},
		"the next before the first ever ran": {story: []step{{"begin", 1, 101}, {"done", 1, 101}, {"begin", 1, 100}, {"done", 1, 100}},
			inversions: 1},
		"the next in another process before a retry": {story: []step{{"begin", 1, 100}, {"failed", 1, 100}, {"begin", 2, 101},
			{"done", 2, 101}, {"begin", 1, 100}, {"done", 1, 100}},
			inversions: 1},
		"beside the one before it": {story: []step{{"begin", 1, 100}, {"begin", 1, 101}, {"done", 1, 100},
			{"done", 1, 101}}, inversions: 1, overlaps: 1},
		"a message beside itself": {story: []step{{"begin", 1, 100}, {"begin", 1, 100}, {"done", 1, 100},
			{"done", 1, 100}}, overlaps: 1},
		"in two processes, while a claim moves": {story: []step{{"begin", 1, 100}, {"begin", 2, 100}, {"done", 2, 100},
			{"cancelled", 1, 100}, {"begin", 2, 101}, {"done", 2, 101}}},
		"killed, and run again elsewhere, and what follows": {story: []step{{"begin", 1, 100}, {"begin", 2, 100}, {"done", 2, 100},
			{"begin", 2, 101}, {"done", 2, 101}}},
		"killed, and what follows runs elsewhere first": {story: []step{{"begin", 1, 100}, {"begin", 2, 101}, {"done", 2, 101},
			{"begin", 2, 100}, {"done", 2, 100}}, inversions: 1},
		"killed after it was done and before that was known": {story: []step{{"begin", 1, 100}, {"done", 1, 100}, {"begin", 1, 101},
			{"begin", 2, 100}, {"done", 2, 100}, {"begin", 2, 101}, {"done", 2, 101}}},
		"a duplicate behind what follows it": {story: []step{{"begin", 1, 100}, {"done", 1, 100}, {"begin", 1, 101}, {"done", 1, 101},
			{"begin", 2, 100}, {"done", 2, 100}}},
		"duplicates, the second before a retry of the first": {story: []step{{"begin", 1, 100}, {"done", 1, 100}, {"begin", 1, 101},
			{"done", 1, 101},
			{"begin", 2, 100}, {"failed", 2, 100}, {"begin", 2, 101}, {"done", 2, 101}}, inversions: 1},
		"failed here, done there, and what follows comes back here": {story: []step{{"begin", 1, 100}, {"failed", 1, 100},
			{"begin", 2, 100}, {"done", 2, 100},
			{"begin", 1, 101}, {"done", 1, 101}}},
		"cancelled here, and what follows here": {story: []step{{"begin", 1, 100}, {"cancelled", 1, 100}, {"begin", 1, 101},
			{"done", 1, 101}}, inversions: 1},
		"done there, cancelled here, and what follows here": {story: []step{{"begin", 1, 100}, {"begin", 2, 100}, {"done", 2, 100},
			{"cancelled", 1, 100}, {"begin", 1, 101}, {"done", 1, 101}}},
		"done there, failed here, and what follows here": {story: []step{{"begin", 1, 100}, {"begin", 2, 100}, {"done", 2, 100},
			{"failed", 1, 100}, {"begin", 1, 101}, {"done", 1, 101}}},
		"dead-lettered, then the next": {story: []step{{"begin", 1, 100}, {"failed", 1, 100}, {"begin", 1, 100}, {"failed", 1, 100},
			{"letter", 1, 100},
			{"begin", 1, 101}, {"done", 1, 101}}},
		"the next before the dead letter": {story: []step{{"begin", 1, 100}, {"failed", 1, 100}, {"begin", 1, 101}, {"letter", 1, 100},
			{"done", 1, 101}}, inversions: 1},
		"killed after the dead letter, which comes twice": {story: []step{{"begin", 1, 100}, {"failed", 1, 100}, {"letter", 1, 100},
			{"begin", 2, 100}, {"failed", 2, 100}, {"letter", 2, 100}, {"begin", 2, 101}, {"done", 2, 101}}},
		"and the next before its second copy": {story: []step{{"begin", 1, 100}, {"failed", 1, 100}, {"letter", 1, 100},
			{"begin", 2, 100}, {"failed", 2, 100}, {"begin", 2, 101}, {"done", 2, 101}, {"letter", 2, 100}}, inversions: 1},
		"three at once": {story: []step{{"begin", 1, 100}, {"begin", 1, 101}, {"begin", 1, 102}}, inversions: 2, overlaps: 2},
		"only the third early": {story: []step{{"begin", 1, 100}, {"done", 1, 100}, {"begin", 1, 102}, {"done", 1, 102},
			{"begin", 1, 101}, {"done", 1, 101}}, inversions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			runs, letters := tell(t, c.story)
			got := ledger.Inspect(runs, letters, func(id int64) int64 { return id / 100 })
			if got.Inversions != c.inversions || got.Overlaps != c.overlaps || len(got.Found) != c.inversions+c.overlaps {
				t.Errorf("%d inversions and %d overlaps, want %d and %d: %v", got.Inversions, got.Overlaps, c.inversions, c.overlaps,
					got.Found)
			}
		})
	}
}

func TestInspectCounts(t *testing.T) {
	runs, letters := tell(t, []step{{"begin", 1, 100}, {"begin", 1, 200}, {"failed", 1, 100}, {"done", 1, 200}, {"begin", 2, 200},
		{"done", 2, 200},
		{"begin", 2, 100}, {"done", 2, 100}, {"begin", 2, 101}, {"done", 2, 101}})
	got := ledger.Inspect(runs, letters, func(id int64) int64 { return id / 100 })
	if want := (ledger.Order{Keys: 2, Queued: 1, Runs: 5, Failed: 1, Again: 1, Abreast: 2}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestClock: stamps are in the order of the reports, also over several connections, and a report that makes no sense is refused.
func TestClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	clock, err := ledger.StartClock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer clock.Close()
	var reporters [2]*ledger.Reporter
	for i := range reporters {
		if reporters[i], err = ledger.NewReporter(path); err != nil {
			t.Fatal(err)
		}
		defer reporters[i].Close()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, err := reporters[0].Begin(7, 70)
	must(err)
	second, err := reporters[1].Begin(8, 80)
	must(err)
	must(reporters[0].End(first, ledger.Failed))
	must(reporters[0].Letter(70))
	must(reporters[1].End(second, ledger.Done))
	third, err := reporters[1].Begin(9, 90)
	must(err)
	if err := reporters[0].End(first, ledger.Done); err == nil {
		t.Error("a run ended twice")
	}
	if err := reporters[0].End(third+1, ledger.Done); err == nil {
		t.Error("a run ended that never began")
	}
	runs, letters := clock.Stamped()
	for i := range runs {
		runs[i].Pid = 0
	}
	want := []ledger.Run{{ID: 7, Seq: 70, Begin: 1, End: 3, Outcome: ledger.Failed},
		{ID: 8, Seq: 80, Begin: 2, End: 5, Outcome: ledger.Done}, {ID: 9, Seq: 90, Begin: 6}}
	if !reflect.DeepEqual(runs, want) || len(letters) != 1 || letters[0].Seq != 70 || letters[0].At != 4 {
		t.Errorf("got %+v and %+v, want %+v", runs, letters, want)
	}
}
