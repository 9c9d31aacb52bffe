package brokertest

import (
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// lagIsRight proves that the lag is unknown, -1 and not 0, before the source has learned it; that it counts what waits and what
// is not settled; and that it reaches 0.
func lagIsRight(w *world) {
	m := w.process(budget(10, 1<<20))
	s, ok := m.src.(broker.LagReporter)
	if !ok {
		w.h.skip(w, "the source is no broker.LagReporter")
	}
	if l := s.Lag(); l.Waiting != -1 || l.Unsettled != -1 || !l.At.IsZero() {
		w.Errorf("before Open the lag is %+v, want unknown", l)
	}
	w.produce(0, 30)
	m.open()
	m.receive()
	ms := m.take(10)
	if !w.h.Traits.AtMostOnce {
		w.lag(s, "30 messages are unsettled, of which 10 are out", func(l broker.Lag) bool {
			return l.Unsettled == 30 && l.Waiting >= 0 && l.Waiting <= 20
		})
	}
	byPartition(w, s)
	m.mustAck(ms...)
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
	w.lag(s, "all is settled", func(l broker.Lag) bool { return l.Unsettled == 0 && l.Waiting == 0 })
	byPartition(w, s)
	at := s.Lag().At
	if at.IsZero() {
		w.Error("the lag does not say when it was learned")
	}
	w.produce(0, 5)
	w.eventually("a later lag was learned", func() bool { return s.Lag().At.After(at) })
}

// lag waits until a source's lag is that of what is so.
func (w *world) lag(s broker.LagReporter, what string, right func(broker.Lag) bool) {
	w.Helper()
	if !w.within(func() bool { return right(s.Lag()) }) {
		w.Fatalf("the lag is still %+v, though %s%s", s.Lag(), what, w.seen())
	}
}

// lagWaiting proves that Lag.Waiting has what waits: with a budget for one message nearly all of 30 do.
func lagWaiting(w *world) {
	const limit, n = 10_000, 30
	m := w.process(budget(1, limit))
	s, ok := m.src.(broker.LagReporter)
	if !ok {
		w.h.skip(w, "the source is no broker.LagReporter")
	}
	for _, o := range w.filled(w.sys.Topics[0], n, limit-1000) {
		w.sys.Produce(w, 0, o) // by itself, for a broker may answer with a whole batch
	}
	m.open()
	m.receive()
	m.mustAck(m.take(1)...)
	out := m.take(1)
	w.lag(s, "of 30 messages one is settled and one is out, and most of the others wait", func(l broker.Lag) bool {
		return l.Unsettled == n-1 && l.Waiting <= n-2 && l.Waiting >= n/2
	})
	m.mustAck(out...)
	defer m.handle(func(msg *broker.Message) { m.mustAck(msg) })()
	w.settled()
}

// byPartition proves that a lag by partition, where the source has it, has those that hold messages, and that they add up to the
// lag of all.
func byPartition(w *world, s broker.LagReporter) {
	by, ok := s.(broker.PartitionLagReporter)
	if !ok || s.Lag().Group {
		return
	}
	w.eventually("the lags of the partitions are the lag", func() bool {
		all, sum, seen := s.Lag(), broker.Lag{}, map[string]bool{}
		for _, l := range by.LagByPartition() {
			name := fmt.Sprint(l.Topic, " ", l.Partition)
			if l.Topic == "" || l.Partition < 0 || seen[name] {
				w.Errorf("a lag of %+v", l)
			}
			seen[name] = true
			sum.Waiting, sum.Unsettled = sum.Waiting+l.Waiting, sum.Unsettled+l.Unsettled
		}
		return len(seen) > 0 && sum.Waiting == all.Waiting && sum.Unsettled == all.Unsettled
	})
}

// lagOfTwo proves that Lag.Group is true: of two processes that have half of the messages each, both know of all with it, and of
// their own half without.
func lagOfTwo(w *world) {
	a, b := w.pair(budget(5, 1<<20))
	of := func(m *member) broker.Lag { return m.src.(broker.LagReporter).Lag() }
	if _, ok := a.src.(broker.LagReporter); !ok {
		w.h.skip(w, "the source is no broker.LagReporter")
	}
	w.produce(0, 20)
	w.produce(1, 20)
	first, second := a.take(5), b.take(5)
	right := func(l broker.Lag) bool { return l.Unsettled == map[bool]int64{true: 40, false: 20}[l.Group] }
	for _, m := range []*member{a, b} {
		w.eventually(fmt.Sprintf("%s: the lag is 40 unsettled where Lag.Group is set (%v), and otherwise 20", m.name, of(m).Group),
			func() bool {
				return right(of(m))
			})
	}
	a.mustAck(first...)
	b.mustAck(second...)
	for _, m := range []*member{a, b} {
		defer m.handle(func(msg *broker.Message) { m.mustAck(msg) })()
	}
	w.settled()
	w.handledOnce()
}

// lagWhileDown proves that a lag that cannot be learned is not made up, and that Lag does not block.
func lagWhileDown(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.process()
	s, ok := m.src.(broker.LagReporter)
	if !ok {
		w.h.skip(w, "the source is no broker.LagReporter")
	}
	w.produce(0, 5)
	w.sys.Down(w)
	ctx, cancel := within(w.lease)
	defer cancel()
	_ = m.tryOpen(ctx)
	asked := make(chan broker.Lag, 1)
	go func() { asked <- s.Lag() }()
	select {
	case l := <-asked:
		if l.Unsettled != -1 || l.Waiting != -1 {
			w.Errorf("without ever a contact the lag is %+v, want unknown", l)
		}
	case <-time.After(w.h.patience()):
		w.Fatal("Lag blocks while the broker is away")
	}
}

// lagStaysUnknown proves that a source which lost its claims to an outage does not say that nothing waits: it keeps what it knew,
// or says that it is unknown, and learns it anew when the broker is back.
func lagStaysUnknown(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.process(budget(5, 1<<20))
	s, ok := m.src.(broker.LagReporter)
	if !ok {
		w.h.skip(w, "the source is no broker.LagReporter")
	}
	m.open()
	m.receive()
	w.produce(0, 20)
	ms := m.take(5)
	w.eventually("the lag is 20 unsettled", func() bool { return s.Lag().Unsettled == 20 })
	w.sys.Down(w)
	for end := time.Now().Add(4 * w.lease); time.Now().Before(end); time.Sleep(w.lease / 16) {
		if l := s.Lag(); l.Unsettled != -1 && l.Unsettled != 20 {
			w.Fatalf("while the broker is away the lag is %+v, want 20 unsettled, or unknown", l)
		}
	}
	w.sys.Up(w)
	_ = m.ack(ms...)
	stop := m.handle(func(msg *broker.Message) { _ = m.ack(msg) })
	defer stop()
	w.settled()
	w.eventually("the lag reaches 0", func() bool { l := s.Lag(); return l.Unsettled == 0 && l.Waiting == 0 })
	w.handled()
}
