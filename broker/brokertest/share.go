package brokertest

import (
	"slices"

	"github.com/longshoremq/longshore/broker"
)

// sharesAddUp proves that all processes together have the whole of the work, and never more: while others come, go and die. A
// share that stays while somebody else has the same part lets a limit be exceeded that is one of all of them.
func sharesAddUp(w *world) {
	first := w.sharing()
	before := w.process()
	if s := before.share(); s.Held != 0 {
		before.fail("before Open it has a share: %+v", s)
	}
	w.wholeBy("one process", first)
	second := w.join(budget(10, 1<<20))
	w.wholeBy("two processes", first, second)
	third := w.join(budget(10, 1<<20))
	w.wholeBy("three processes", first, second, third)
	second.close()
	if s := second.share(); s.Held != 0 {
		second.fail("after Close it has a share: %+v", s)
	}
	w.wholeBy("one of three has left", first, third)
	if third.p.Kill == nil {
		return
	}
	third.kill()
	w.wholeBy("one of two has died", first)
}

// shareOfCutOff proves that a process has no share when others may have what it had.
func shareOfCutOff(w *world) {
	first := w.sharing()
	second := w.join(budget(10, 1<<20))
	w.need("Cut", second.p.Cut != nil)
	w.need("Heal", second.p.Heal != nil)
	w.wholeBy("two processes", first, second)
	second.fate.lose()
	second.p.Cut(Both)
	w.eventually("the whole is the other one's", func() bool { return first.share().Part() == 1 })
	if s := second.share(); s.Held != 0 {
		second.fail("it is cut off, and the other process has the whole; its share is still %+v", s)
	}
	second.p.Heal()
	w.wholeBy("it is back", first, second)
}

// sharing makes a process, and skips the case where it can never tell its share.
func (w *world) sharing() *member {
	w.Helper()
	m := w.process(budget(10, 1<<20))
	s, ok := m.src.(broker.Sharer)
	if !ok {
		w.h.skip(w, "the source is no broker.Sharer")
	}
	if _, err := s.Share(); err != nil {
		w.h.skip(w, "the source cannot tell its share: "+err.Error())
	}
	m.open()
	m.receive()
	return m
}

// share is a member's.
func (m *member) share() broker.Share {
	m.w.Helper()
	s, err := m.src.(broker.Sharer).Share()
	if err != nil {
		m.fail("Share: %v", err)
	}
	return s
}

// wholeBy waits until the members have the whole together. Never is it more: what they said one after the other counts where they
// say the same once more, for a part may have gone from one to another in between.
func (w *world) wholeBy(who string, ms ...*member) {
	w.Helper()
	shares := func() (all []broker.Share, sum float64) {
		for _, m := range ms {
			s := m.share()
			all, sum = append(all, s), sum+s.Part()
		}
		return all, sum
	}
	w.eventually(who+" have the whole", func() bool {
		all, sum := shares()
		again, _ := shares()
		if !slices.Equal(all, again) {
			return false
		}
		if sum > 1.001 {
			w.Fatalf("%s have more than the whole: %+v", who, all)
		}
		return sum > 0.999
	})
}
