package middleware

import (
	"container/list"
	"time"
)

// Turns are the messages that wait for a limit, in the order in which they came, and those that were called and have yet to come.
// The zero value has none. Not safe for concurrent use.
type turns struct {
	of      map[message]*turn
	waiting list.List // of *turn, the next one first
	called  list.List // of *turn, by when they were called
	last    uint64    // number that was given
	sweep   int       // messages that wait until those are forgotten that do not come any more
}

// A turn is a message's.
type turn struct {
	message
	number uint64 // in the order in which they came
	wake   func() bool
	in     *list.List    // waiting or called; nil: it was called, and nobody waits for it any more
	at     *list.Element // of that list
	since  time.Time     // when it was called
}

const (
	// onItsWay is for how long a turn is kept for one that was called. It may wait for a worker for longer, and then keeps its
	// place; or never come, as where a Dedup before the limit has found that it is a repeat.
	onItsWay = 100 * time.Millisecond
	// longestLate is how long after its call a message that did not come is known.
	longestLate = time.Hour
)

// leave takes a turn out of its list.
func (t *turn) leave() {
	if t.in != nil {
		t.in.Remove(t.at)
	}
	t.in, t.at = nil, nil
}

// ahead is how many are to have a token before m.
func (ts *turns) ahead(m message) int {
	if t := ts.of[m]; t != nil && t.in != &ts.waiting {
		return 0
	}
	return ts.len()
}

// len is how many wait, or were called and are on their way.
func (ts *turns) len() int { return ts.waiting.Len() + ts.called.Len() }

func (ts *turns) forget(m message) {
	if t := ts.of[m]; t != nil {
		t.leave()
		delete(ts.of, m)
	}
}

// wait has m wait in its place, which is the last one, or that which it had before it was called.
func (ts *turns) wait(m message, wake func() bool, now time.Time) {
	if ts.sweep--; ts.sweep < 0 {
		ts.forgetGone(now)
	}
	t := ts.of[m]
	switch {
	case t == nil:
		ts.last++
		t = &turn{message: m, number: ts.last, in: &ts.waiting}
		t.at = ts.waiting.PushBack(t)
		if ts.of == nil {
			ts.of = map[message]*turn{}
		}
		ts.of[m] = t
	case t.in != &ts.waiting:
		t.leave()
		t.in, t.at = &ts.waiting, ts.insert(t)
	}
	t.wake = wake
}

// insert gives one that was called its place back. Before it are only others that were called, too.
func (ts *turns) insert(t *turn) *list.Element {
	for e := ts.waiting.Front(); e != nil; e = e.Next() {
		if e.Value.(*turn).number > t.number {
			return ts.waiting.InsertBefore(t, e)
		}
	}
	return ts.waiting.PushBack(t)
}

// call is the next one, and what calls it.
func (ts *turns) call(now time.Time) (t *turn, wake func() bool) {
	t = ts.waiting.Front().Value.(*turn)
	t.leave()
	t.since, t.in, t.at = now, &ts.called, ts.called.PushBack(t)
	return t, t.wake
}

// miss has nobody wait for one that was called: it is on its way already, or went back to the broker.
func (ts *turns) miss(t *turn) {
	if t.in == &ts.called {
		t.leave()
	}
}

// missLate has nobody wait for those that have not come in time, or whose claim has ended. It says whether there was one of the
// first.
func (ts *turns) missLate(now time.Time) (late bool) {
	for first := ts.called.Front(); first != nil; first = ts.called.Front() {
		t := first.Value.(*turn)
		ended := t.ended()
		if now.Sub(t.since) < onItsWay && !ended {
			return late
		}
		late = late || !ended
		ts.miss(t)
	}
	return late
}

// due says whether m was called a moment ago, and is waited for.
func (ts *turns) due(m message) bool {
	t := ts.of[m]
	return t != nil && t.in == &ts.called
}

func (t *turn) ended() bool {
	select {
	case <-t.claim.Ended():
		return true
	default:
		return false
	}
}

// forgetGone forgets those that do not come any more: their claims have ended, or they were called and are missed for long.
func (ts *turns) forgetGone(now time.Time) {
	for m, t := range ts.of {
		if t.ended() || t.in == nil && now.Sub(t.since) > longestLate {
			ts.forget(m)
		}
	}
	ts.sweep = max(1024, len(ts.of))
}
