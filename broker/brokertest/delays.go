package brokertest

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// giveBacksOfOneCall proves that of several messages which are given back in one call each has its own delay and its own runs, as
// far as these are kept: none comes before its delay, and none with the runs of another.
func giveBacksOfOneCall(w *world) {
	m := w.join()
	w.produce(0, 4)
	ms := m.take(4)
	delay := min(w.h.Lease, w.h.Traits.NativeDelay)
	backs := make(map[string]broker.Back)
	due := make(map[string]time.Time)
	var all []broker.Back
	for i, msg := range ms { // the first and the last have none
		b := broker.Back{Token: msg.Token, Runs: int32(i+1) % 4}
		if i == 1 || i == 2 {
			b.Delay = delay
		}
		backs[id(msg)], due[id(msg)] = b, time.Now().Add(b.Delay)
		all = append(all, b)
	}
	if err := m.giveBack(ms, all); err != nil {
		w.Fatalf("Nack: %v", err)
	}
	for range ms {
		msg := m.take(1)[0]
		if early := time.Until(due[id(msg)]); early > 0 {
			w.Errorf("message %s came %v before its delay, which others of the same Nack had not", id(msg), early)
		}
		runs := backs[id(msg)].Runs
		if msg.Runs > runs || w.h.KeepsRuns && msg.Runs != runs {
			w.Errorf("message %s says %d runs, and %d were told in a Nack of several messages", id(msg), msg.Runs, runs)
		}
		m.mustAck(msg)
	}
	w.settled()
}

// redeliveredBeforeDelay proves that a message which was given back with a delay, and is delivered again before that could be
// said, does not come before the delay is over: the adapter knows it.
func redeliveredBeforeDelay(w *world) {
	w.need("Redeliver", w.sys.Redeliver != nil)
	w.need("FailSettles", w.sys.FailSettles != nil)
	m := w.join()
	w.produce(0, 1)
	msg := m.take(1)[0]
	w.sys.FailSettles(w, 1<<20)
	due := time.Now().Add(min(2*w.h.Lease, w.h.Traits.NativeDelay))
	m.mustNack(time.Until(due), 1, msg)
	w.sys.Redeliver(w, msg)
	again, _ := m.hand.take(1, w.moment())
	w.sys.FailSettles(w, 0)
	if len(again) == 0 {
		again = m.take(1)
	}
	if early := time.Until(due); early > 0 {
		w.Errorf("message %s came %v before the delay that it was given back with", id(msg), early)
	}
	m.mustAck(again...)
	w.settled()
}

// lagOfDelayed proves that what waits for its delay is not settled, and that it is not told as waiting for its first delivery.
func lagOfDelayed(w *world) {
	m := w.join()
	s, ok := m.src.(broker.LagReporter)
	if !ok {
		w.h.skip(w, "the source is no broker.LagReporter")
	}
	w.produce(0, 3)
	ms := m.take(3)
	m.mustNack(min(time.Hour, w.h.Traits.NativeDelay), 1, ms[:2]...)
	m.mustAck(ms[2])
	w.unsettled(2)
	w.lag(s, "two messages wait for their delay, and none for its first delivery", func(l broker.Lag) bool {
		return l.Unsettled == 2 && l.Waiting == 0
	})
}
