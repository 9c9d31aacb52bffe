package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// budgetMessages proves that no more messages are out than the budget says, that it is used in full, and that each settle frees
// its place.
func budgetMessages(w *world) {
	m := w.join(budget(7, 1<<20), chunk(5))
	w.produce(0, 40)
	out := m.take(7)
	m.quiet(w.moment(), "the budget is used up")
	m.mustAck(out[:3]...)
	out = append(out[3:], m.take(3)...)
	m.quiet(w.moment(), "the budget is used up again")
	m.mustAck(out...)
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
	w.eventually("nothing is out", func() bool { return m.out() == 0 }) // at most once it is settled before it is handled
	w.handledOnce()
}

// budgetBytes proves that the budget's bytes bound what is out, but for one message, and that they are freed by settles.
func budgetBytes(w *world) {
	const limit, each, n = 10_000, 1000, 100
	m := w.join(budget(1000, limit), chunk(3))
	w.sys.Produce(w, 0, w.filled(w.sys.Topics[0], n, each)...)
	m.take(1)
	time.Sleep(w.moment())
	if _, out := m.hand.out(); out > limit+each {
		w.Errorf("%d bytes are out, the budget is %d and one message of %d may go over", out, limit, each)
	}
	m.mustAck(m.hand.untook()...)
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
	w.eventually("nothing is out", func() bool { return m.out() == 0 }) // at most once it is settled before it is handled
	w.handledOnce()
}

// bytesUsedUp proves that messages go on when the budget's bytes were used up to the last one, which with messages of one size is
// the rule: what is freed is a whole number of them, and so is what may be asked for next.
func bytesUsedUp(w *world) {
	const each, n = 50_000, 60
	for _, at := range []int64{1, 4} {
		m := w.join(budget(1000, at*each))
		w.sys.Produce(w, 0, w.filled(w.sys.Topics[0], n, each)...)
		for range n {
			m.mustAck(m.take(1, fmt.Sprintf("of %d with a budget of %d", n, at))...)
		}
		w.settled()
		m.close()
	}
	w.handledOnce()
}

// overBudget proves that a message larger than the whole budget is handed out, alone, and does not stop the rest.
func overBudget(w *world) {
	m := w.join(budget(10, 4000))
	ms := w.filled(w.sys.Topics[0], 5, 1000)
	ms[2].Value = append(ms[2].Value, bytes.Repeat([]byte{'y'}, 50_000)...)
	w.sys.Produce(w, 0, ms...)
	for range ms {
		m.mustAck(m.take(1)...)
	}
	w.settled()
	w.handledOnce()
}

// setBudget proves that a larger budget is used at once, by a source that waits for its settles; and that a smaller one is kept,
// once what was asked for before has come.
func setBudget(w *world) {
	m := w.join(budget(4, 1<<20))
	s, ok := m.src.(broker.Rebudgeter)
	if !ok {
		w.h.skip(w, "the source is no broker.Rebudgeter")
	}
	w.produce(0, 40)
	ms := m.take(4)
	m.quiet(w.moment(), "the budget is used up")
	m.hand.setBudget(broker.Budget{Messages: 12, Bytes: 1 << 20})
	s.SetBudget(broker.Budget{Messages: 12, Bytes: 1 << 20})
	ms = append(ms, m.take(8)...)
	m.quiet(w.moment(), "the larger budget is used up")
	m.mustAck(ms...)
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	w.settled()
	s.SetBudget(broker.Budget{Messages: 3, Bytes: 1 << 20})
	w.produce(0, 20) // what was asked for with the larger one is among these
	w.settled()
	stop()
	m.hand.setBudget(broker.Budget{Messages: 3, Bytes: 1 << 20})
	w.produce(0, 20)
	ms = m.take(3)
	m.quiet(w.moment(), "the smaller budget is used up")
	m.mustAck(ms...)
	defer m.handle(func(msg *broker.Message) { m.mustAck(msg) })()
	w.settled()
	w.handledOnce()
}

// pauseByTopic proves that a paused topic takes no budget from the others, even while one of its messages is out: what was
// prefetched of it goes back. A source that cannot pause by topic says ErrUnsupported; then all is paused, and another process
// gets everything.
func pauseByTopic(w *world) {
	m := w.process(budget(20, 8000), chunk(1))
	p, ok := m.src.(broker.Pauser)
	if !ok {
		w.h.skip(w, "the source is no broker.Pauser")
	}
	m.open()
	a, b := w.sys.Topics[0], w.sys.Topics[1]
	w.sys.Produce(w, 0, w.filled(a, 40, 1000)...)
	if !m.receiveOnce() { // the rest of the bytes is prefetched now, or may be
		w.Fatalf("Receive: %v", m.hand.why())
	}
	first := m.take(1)
	if !mustPause(w, p, a) {
		pauseAll(w, m, p, first)
		return
	}
	m.receive()
	w.sys.Produce(w, 0, w.filled(b, 10, 1000)...)
	for range 10 {
		msg := m.take(1)[0]
		if msg.Topic != b {
			w.Error("a message of a paused topic was handed out")
		}
		m.mustAck(msg)
	}
	m.quiet(w.moment(), "its topic is paused")
	m.mustAck(first...)
	m.quiet(w.moment(), "its topic is paused")
	if err := p.Resume(a); err != nil {
		w.Errorf("Resume: %v", err)
	}
	for range 39 {
		m.mustAck(m.take(1)...)
	}
	w.settled()
	w.handledOnce()
}

// mustPause says whether the source can pause by topic.
func mustPause(t testing.TB, p broker.Pauser, topic string) bool {
	t.Helper()
	err := p.Pause(topic)
	if err == nil {
		return true
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Pause by topic: %v, want nil or errors.ErrUnsupported", err)
	}
	return false
}

// pauseAll is the rest of pauseByTopic where only all can be paused.
func pauseAll(w *world, m *member, p broker.Pauser, first []*broker.Message) {
	w.Helper()
	if err := p.Pause(); err != nil {
		w.Fatalf("Pause of all: %v", err)
	}
	m.receive()
	m.quiet(w.moment(), "all is paused")
	left := 39
	if w.h.StopHandsOver {
		other := w.join()
		other.mustAck(other.take(left, "which Pause of all has to give back, for Harness.StopHandsOver is set and the lease does not "+
			"run out here")...)
		left = 0
		other.close()
	}
	m.mustAck(first...)
	w.produce(0, 3)
	m.quiet(w.moment(), "all is paused")
	if err := p.Resume(); err != nil { // from here on nothing happens at the broker: Resume itself has to wake the source
		w.Errorf("Resume of all: %v", err)
	}
	for range left + 3 {
		m.mustAck(m.take(1)...)
	}
	w.settled()
	w.handledOnce()
}

// pausedBeforeOpen proves that a source which is paused before it is opened hands out nothing until it is resumed.
func pausedBeforeOpen(w *world) {
	m := w.process()
	p, ok := m.src.(broker.Pauser)
	if !ok {
		w.h.skip(w, "the source is no broker.Pauser")
	}
	if err := p.Pause(); err != nil {
		w.Fatalf("Pause before Open: %v", err)
	}
	m.open()
	m.receive()
	w.produce(0, 5)
	m.quiet(w.moment(), "the source was paused before it was opened")
	if err := p.Resume(); err != nil {
		w.Errorf("Resume of all: %v", err)
	}
	m.mustAck(m.take(5)...)
	w.settled()
	w.handledOnce()
}

// held proves that a claim on hold hands out nothing before its time, and does afterwards; and that another Hold lets it go on
// sooner.
func held(w *world) {
	m := w.join()
	s, ok := m.src.(broker.Holder)
	if !ok {
		w.h.skip(w, "the source is no broker.Holder")
	}
	c := m.current()
	until := time.Now().Add(2 * w.lease)
	s.Hold(c, until)
	w.produce(0, 5)
	ms := m.take(1)
	if early := time.Until(until); early > 0 {
		w.Errorf("a message of a held claim came %v too early", early)
	}
	m.mustAck(append(ms, m.take(4)...)...)
	s.Hold(c, time.Now().Add(time.Hour))
	w.produce(0, 5)
	m.quiet(w.moment(), "its claim is held")
	s.Hold(c, time.Now())
	m.mustAck(m.take(5, "of a claim that is held no more")...)
	w.settled()
	w.handledOnce()
}
