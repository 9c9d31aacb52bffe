package brokertest

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// promised is an ack that said nil.
type promised struct {
	by *member
	// heard is how many events the member had seen when it was made.
	heard int
	at    time.Time
}

// promise books that m was told nil.
func (w *world) promise(m *member, ms []*broker.Message, heard int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, msg := range ms {
		w.acked[id(msg)] = promised{m, heard, time.Now()}
	}
}

// crossing is how much later than an ack a message may be handed out elsewhere, of a lease: it was under way when the ack was
// made.
const crossing = 20

func (w *world) cameAgain(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.acked[id]; ok && time.Since(p.at) > w.h.Lease/crossing {
		w.again[id] = p
	}
}

// promises checks that what an ack said nil to did not come again, unless that was reported as Unconfirmed.
func (w *world) promises() {
	w.Helper()
	w.mu.Lock()
	again, ids := maps.Clone(w.again), make(map[*member][]string)
	w.mu.Unlock()
	for id, p := range again {
		ids[p.by] = append(ids[p.by], id)
	}
	for m, ids := range ids {
		if broken := m.broken(ids, again); len(broken) > 0 {
			w.Errorf("%s: Ack said nil to %d messages that came again, and %d of them were not reported as Unconfirmed afterwards: %v%s",
				m.name, len(ids), len(broken), broken, w.story(broken))
		}
	}
}

// broken are the messages, of those that came again, which no Unconfirmed event can be about. An event is about acks before it:
// each excuses N of them, the latest first.
func (m *member) broken(ids []string, acks map[string]promised) (broken []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return nil
	}
	slices.SortFunc(ids, func(a, b string) int { return acks[b].heard - acks[a].heard })
	used := int64(0)
	for _, id := range ids {
		if used >= m.excused(acks[id].heard) {
			broken = append(broken, id)
			continue
		}
		used++
	}
	return broken
}

// heard is how many events came so far.
func (m *member) heard() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}

// excused is how many acks the Unconfirmed events after the first few are about. The caller holds m.mu.
func (m *member) excused(after int) (n int64) {
	for _, e := range m.events[after:] {
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

// unconfirmedIsTold proves that acks which said nil and did not hold are reported: a process is cut off, acks, and its messages
// are another's before it is healed.
func unconfirmedIsTold(w *world) {
	a, ms := w.cutOff(10)
	heard := a.heard()
	said := int64(0)
	for _, msg := range ms[:5] {
		if a.ack(msg) == nil {
			said++
		}
	}
	b := w.join()
	got := b.take(10, "of a process that is cut off for longer than its lease")
	a.p.Heal()
	w.eventually("acks that said nil and did not hold were reported as Unconfirmed", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.excused(heard) >= said
	})
	for _, msg := range ms[5:] {
		_ = a.ack(msg)
	}
	for _, msg := range got {
		_ = b.ack(msg)
	}
	w.settled()
	w.handled()
}

// lateSettlesFree proves that settles which say ErrLost, for their lease has run out or another has the claim, free the budget as
// any other.
func lateSettlesFree(w *world) {
	a, ms := w.cutOff(6)
	b := w.join(budget(6, 1<<20))
	got := b.take(6, "of a process that is cut off for longer than its lease")
	time.Sleep(w.lease) // by now a knows it, too
	for _, of := range byClaim(ms[:3]) {
		_ = a.ack(of...)
	}
	for _, of := range byClaim(ms[3:]) {
		_ = a.nack(0, 0, of...)
	}
	a.p.Heal()
	for _, msg := range got {
		_ = b.ack(msg)
	}
	b.close()
	w.produce(0, 6)
	w.eventually("late settles freed the budget, and it is used in full", func() bool { return a.out() == 6 })
	defer a.handle(func(msg *broker.Message) { _ = a.ack(msg) })()
	w.settled()
	w.handled()
}

// lateAck proves that an ack whose lease has run out is sent, on a broker that takes it: it spares the next holder the work.
func lateAck(w *world) {
	a, ms := w.cutOff(5)
	b := w.join()
	got := b.take(5, "of a process that is cut off for longer than its lease")
	time.Sleep(w.lease) // by now a knows it, too
	_ = a.ack(ms[0])
	err := a.ack(ms...) // one of them again: that one is not late
	if lost := (*broker.LostError)(nil); errors.As(err, &lost) && lost.N != len(ms)-1 {
		w.Errorf("%v, of %d messages of which one was settled before", err, len(ms))
	}
	a.p.Heal()
	w.settled() // although b has not acked
	for _, msg := range got {
		_ = b.ack(msg)
	}
	w.handled()
}

func needsLateAcks(h *Harness) string {
	if !h.LateAcks {
		return "Harness.LateAcks is not set: the broker takes no ack by whom has lost the message"
	}
	return needsRedelivery(h)
}

// cutOff makes a process that has n messages out and is cut off.
func (w *world) cutOff(n int) (*member, []*broker.Message) {
	w.Helper()
	m := w.process(budget(n, 1<<20))
	w.need("Cut", m.p.Cut != nil)
	w.need("Heal", m.p.Heal != nil)
	m.open()
	m.receive()
	w.produce(0, n)
	ms := m.take(n)
	m.p.Cut(Both)
	return m, ms
}
