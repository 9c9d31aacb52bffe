package brokertest

import (
	"github.com/longshoremq/longshore/broker"
)

// trimmedWhileAway proves that messages which retention took while no process was there are counted by a Gap event, exactly, and
// that the rest is handled.
func trimmedWhileAway(w *world) {
	w.need("Trim", w.sys.Trim != nil)
	a := w.join(budget(5, 1<<20))
	w.produce(0, 20)
	ms := a.take(5)
	a.src.Stop() // before the acks free budget: what is given back and trimmed then, a broker may count as settled (JetStream)
	a.waitStopped("Stop")
	a.mustAck(ms...)
	more, _ := a.hand.take(5, 0)
	handled := 5 + len(more)
	if len(more) > 0 {
		a.mustAck(more...)
	}
	last := append(ms, more...)[handled-1]
	a.close()
	w.unsettled(int64(20 - handled))
	w.sys.Trim(w, w.sys.Topics[0], 15)
	b := w.join()
	b.mustAck(b.take(5)...)
	w.settled()
	w.eventually("the gap was told", func() bool { n, _, _ := b.told.gaps(); return n > 0 })
	if _, n, unknown := b.told.gaps(); unknown || n != int64(15-handled) {
		w.Errorf("Gap events say %d messages (unknown: %v), want %d", n, unknown, 15-handled)
	}
	if from := b.told.gapFrom(); last.Offset >= 0 && !w.h.Unordered && from != last.Offset+1 {
		w.Errorf("the first Gap says From %d, want %d, which is after what was handled", from, last.Offset+1)
	}
}

// trimmedUnderway proves the same of a source that runs: what was produced is what is handed out, plus what Gap events count.
// Messages that are out when they are trimmed are settled as ever.
func trimmedUnderway(w *world) {
	w.need("Trim", w.sys.Trim != nil)
	m := w.join(budget(5, 1<<20))
	const n = 300
	w.produce(0, n)
	ms := m.take(5)
	w.sys.Trim(w, w.sys.Topics[0], n-50)
	m.mustAck(ms...)
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
	w.eventually("messages that were handed out and gaps make up the whole", func() bool {
		_, gone, _ := m.told.gaps()
		return m.hand.ever()+int(gone) >= n
	})
	if _, gone, unknown := m.told.gaps(); unknown || m.hand.ever()+int(gone) != n {
		w.Errorf("%d were handed out and Gap events say %d (unknown: %v), want %d together", m.hand.ever(), gone, unknown, n)
	}
}

// trimmedAndGivenBack proves that a message may be given back after the broker has dropped it, and that this is told as a Gap: it
// cannot come again.
func trimmedAndGivenBack(w *world) {
	w.need("Trim", w.sys.Trim != nil)
	m := w.join(budget(10, 1<<20))
	w.produce(0, 15)
	ms := m.take(10)
	w.sys.Trim(w, w.sys.Topics[0], 10)
	m.mustAck(ms[:4]...)
	m.mustNack(0, 0, ms[4:]...)
	m.mustAck(m.take(5)...)
	w.settled()
	if w.h.DropsInSilence {
		return
	}
	w.eventually("what was given back and was gone by then was told as a Gap", func() bool { return m.told.times(broker.Gap) > 0 })
	if _, n, unknown := m.told.gaps(); !unknown && n != 6 {
		w.Errorf("Gap events say %d messages, want 6, which were given back and gone by then", n)
	}
}

// recreated proves that a topic which is deleted and made again is noticed, with a Gap event, and that its messages are not taken
// for those that had the same offsets before: neither for finished ones, nor by late acks of old ones.
func recreated(w *world) {
	w.need("Recreate", w.sys.Recreate != nil)
	m := w.join()
	w.produce(0, 10)
	m.mustAck(m.take(10)...)
	w.settled()
	w.produce(0, 5)
	old := m.take(5)
	w.sys.Recreate(w, w.sys.Topics[0])
	w.produce(0, 20)
	_ = m.ack(old[:3]...)
	_ = m.nack(0, 0, old[3:]...)
	ms := m.take(20)
	for _, msg := range ms {
		for _, o := range old {
			if id(o) == id(msg) {
				w.Errorf("message %s of the deleted topic came again", id(msg))
			}
		}
	}
	m.mustAck(ms...)
	w.settled()
	w.eventually("the recreation was told as a Gap", func() bool { return m.told.times(broker.Gap) > 0 })
	m.quiet(w.moment(), "all was acked")
}

// recreatedWhileAway proves the same of a topic that is made again while no process is there: all of the new messages are handed
// out.
func recreatedWhileAway(w *world) {
	w.need("Recreate", w.sys.Recreate != nil)
	a := w.join()
	w.produce(0, 10)
	a.mustAck(a.take(10)...)
	w.settled()
	a.close()
	w.sys.Recreate(w, w.sys.Topics[0])
	w.produce(0, 20)
	b := w.join()
	b.mustAck(b.take(20)...)
	w.settled()
}

// undecodable proves that something which cannot be decoded is told of (or ends Receive, by the adapter's policy), and that
// nothing around it is lost without a word.
func undecodable(w *world) {
	w.need("Undecodable", w.sys.Undecodable != nil)
	m := w.join()
	w.produce(0, 3)
	w.sys.Undecodable(w, w.sys.Topics[0])
	w.produce(0, 3)
	m.mustAck(m.take(3)...)
	rest, err := m.hand.take(3, w.h.patience())
	if err != nil {
		return // it stops, and says so
	}
	m.mustAck(rest...)
	w.handledOnce()
	w.eventually("what was skipped was told as a Gap", func() bool { return m.told.times(broker.Gap) > 0 })
}

// undecodables proves that what cannot be decoded takes no budget: more of it than the budget has messages holds up nothing that
// stands behind it.
func undecodables(w *world) {
	w.need("Undecodable", w.sys.Undecodable != nil)
	m := w.join(budget(4, 1<<20))
	for range 12 {
		w.sys.Undecodable(w, w.sys.Topics[0])
	}
	w.produce(0, 8)
	for range 2 {
		ms, err := m.hand.take(4, w.h.patience())
		if err != nil {
			return // it stops, and says so
		}
		m.mustAck(ms...)
	}
	w.handledOnce()
}
