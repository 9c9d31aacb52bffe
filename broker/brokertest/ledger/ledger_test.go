package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/longshoremq/longshore/broker/brokertest/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReport(t *testing.T) {
	var l ledger.Ledger
	for _, id := range []string{"handled", "twice", "unseen", "failed", "beside"} {
		l.Produced(id)
	}
	l.Begin("handled")
	l.End("handled", true)
	for range 2 {
		l.Begin("twice")
		l.End("twice", true)
	}
	l.Begin("failed")
	l.End("failed", false)
	l.Begin("beside")
	if before, overlap := l.Begin("beside"); before != 1 || !overlap {
		t.Errorf("a second Begin says %d before, overlap %v", before, overlap)
	}
	l.End("beside", true)
	l.End("beside", true)
	l.Begin("made up")
	l.End("made up", true)

	r := l.Report()
	if r.Produced != 5 || r.Overlaps != 1 || r.Repeats != 2 {
		t.Errorf("figures are %+v", r)
	}
	for name, lists := range map[string][2][]string{
		"lost":     {r.Lost, {"failed", "unseen"}},
		"unseen":   {r.Unseen, {"unseen"}},
		"repeated": {r.Repeated, {"beside", "twice"}},
		"unknown":  {r.Unknown, {"made up"}},
	} {
		if !slices.Equal(lists[0], lists[1]) {
			t.Errorf("%s are %v, want %v", name, lists[0], lists[1])
		}
	}
	if l.Open() != len(r.Lost) {
		t.Errorf("Open is %d, want %d", l.Open(), len(r.Lost))
	}
	if l.Times("twice") != 2 || l.Times("nobody") != 0 {
		t.Errorf("Times are %d and %d", l.Times("twice"), l.Times("nobody"))
	}
	if s := r.String(); !strings.Contains(s, "lost 2 [failed unseen]") {
		t.Errorf("the report reads %q", s)
	}
}

func TestConcurrently(t *testing.T) {
	var l ledger.Ledger
	const n = 1000
	for i := range n {
		l.Produced(fmt.Sprint(i))
	}
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < n; i += 8 {
				l.Begin(fmt.Sprint(i))
				l.End(fmt.Sprint(i), true)
			}
		})
	}
	all.Wait()
	if r := l.Report(); len(r.Lost) > 0 || r.Repeats > 0 || r.Overlaps > 0 || l.Open() != 0 {
		t.Errorf("report: %v", r)
	}
}

func ExampleLedger() {
	var books ledger.Ledger
	books.Produced("order 1")
	books.Produced("order 2")
	books.Begin("order 1")
	books.End("order 1", true)
	fmt.Println(books.Report())
	// Output:
	// produced 2, lost 1 [order 2] (unseen 1 [order 2]), repeated 0 (0 times), overlaps 0, unknown 0
}
