package brokertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// told is what a member was told, in its order.
type told struct {
	fail  failure
	began time.Time // of the case

	mu     sync.Mutex
	events []stamped
}

type stamped struct {
	broker.Event
	at time.Time
}

// A failure fails the case, in the name of a member.
type failure func(format string, args ...any)

// note books an event, and holds it against those before it.
func (t *told) note(e broker.Event, now time.Time) {
	switch e.Kind {
	case broker.Ended, broker.Down, broker.Unconfirmed, broker.Warning, broker.Notice:
		if e.Err == nil {
			t.fail("event %v has no Err", e.Kind)
		}
	}
	before := t.add(stamped{e, now})
	if e.Kind == broker.Down {
		t.checkDown(before, now)
	}
}

// add returns the events before it.
func (t *told) add(e stamped) (before []stamped) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
	return t.events[:len(t.events)-1]
}

// all are the events so far.
func (t *told) all() []stamped {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}

// checkDown holds a Down against the one before it, and against the pause that was between the two before it. A tenth is for
// clocks and scheduling.
func (t *told) checkDown(before []stamped, now time.Time) {
	last, pause := time.Time{}, time.Duration(0) // of this outage
	for _, x := range before {
		switch x.Kind {
		case broker.Up:
			pause = 0
		case broker.Down:
			if last.IsZero() || pause == 0 {
				pause = 1
			} else {
				pause = x.at.Sub(last)
			}
			last = x.at
		}
	}
	least := time.Second // behind another outage
	switch {
	case last.IsZero():
		return
	case pause == 1:
		least = 2 * time.Second
	case pause > 0:
		least = min(2*pause, time.Minute)
	}
	if got := now.Sub(last); got < least*9/10 {
		t.fail("a Down event %v after the last one, and %v should be between them", got, least)
	}
}

// count is how many events came so far.
func (t *told) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.events)
}

// times counts the events of a kind so far.
func (t *told) times(k broker.Kind) (n int) {
	for _, e := range t.all() {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// gaps sums up the Gap events. unknown: at least one did not know its N.
func (t *told) gaps() (events int, n int64, unknown bool) {
	for _, e := range t.all() {
		if e.Kind == broker.Gap {
			events++
			unknown = unknown || e.N < 0
			n += max(0, e.N)
		}
	}
	return events, n, unknown
}

// gapFrom is the lowest From of all Gap events.
func (t *told) gapFrom() int64 {
	from := int64(math.MaxInt64)
	for _, e := range t.all() {
		if e.Kind == broker.Gap {
			from = min(from, e.From)
		}
	}
	return from
}

// excused is how many acks the Unconfirmed events after the first few are about.
func (t *told) excused(after int) (n int64) {
	for _, e := range t.all()[after:] {
		switch {
		case e.Kind != broker.Unconfirmed:
		case e.N < 0:
			return math.MaxInt64
		default:
			n += e.N
		}
	}
	return n
}

// lastEvents is how many events of a member a failure shows.
const lastEvents = 12

// text is what a failure shows of it.
func (t *told) text() string {
	events := t.all()
	skipped := max(0, len(events)-lastEvents)
	var b strings.Builder
	fmt.Fprintf(&b, "events: %d", len(events))
	if skipped > 0 {
		fmt.Fprintf(&b, ", the last %d", lastEvents)
	}
	for _, e := range events[skipped:] {
		fmt.Fprintf(&b, "\n  %v %v", e.at.Sub(t.began).Round(100*time.Microsecond), e.Kind)
		if e.Claim != nil && e.Claim.Partition >= 0 {
			fmt.Fprintf(&b, " of %s/%d", e.Claim.Topic, e.Claim.Partition)
		}
		if e.Kind == broker.Gap || e.Kind == broker.Unconfirmed {
			fmt.Fprintf(&b, ", from %d, n %d", e.From, e.N)
		}
		if e.Err != nil {
			fmt.Fprintf(&b, ": %v", e.Err)
		}
	}
	return b.String()
}
