package brokertest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// promises are acks that said nil, and which of their messages came again.
type promises struct {
	crossing time.Duration // how much later than an ack a message may be handed out elsewhere: it was under way by then

	mu    sync.Mutex
	acked map[string]promise
	again map[string]promise
}

// A promise is an ack of one message that said nil.
type promise struct {
	id    string
	by    string // the member's name
	heard int    // events that the member was told before
	at    time.Time
}

// made books that a member was told nil.
func (p *promises) made(by string, ms []*broker.Message, heard int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range ms {
		p.acked[id(msg)] = promise{id(msg), by, heard, time.Now()}
	}
}

// handedOut books that a message was.
func (p *promises) handedOut(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made, ok := p.acked[id]; ok && time.Since(made.at) > p.crossing {
		p.again[id] = made
	}
}

// notKept are those to a member whose messages came again, the latest first.
func (p *promises) notKept(by string) (made []promise) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.again {
		if x.by == by {
			made = append(made, x)
		}
	}
	slices.SortFunc(made, func(a, b promise) int { return b.heard - a.heard })
	return made
}

// broken are the messages, of promises that were not kept, which no Unconfirmed event can be about. An event is about acks before
// it: each excuses N of them, the latest first.
func (t *told) broken(made []promise) (ids []string) {
	used := int64(0)
	for _, p := range made {
		if used >= t.excused(p.heard) {
			ids = append(ids, p.id)
			continue
		}
		used++
	}
	return ids
}

// keepsPromises checks that what an ack said nil to did not come again, unless that was reported as Unconfirmed.
func (m *member) keepsPromises() {
	if _, gone, _ := m.fate.is(); gone {
		return
	}
	made := m.w.promises.notKept(m.name)
	if broken := m.told.broken(made); len(broken) > 0 {
		m.fail("Ack said nil to %d messages that came again, and %d of them were not reported as Unconfirmed afterwards: %v%s",
			len(made), len(broken), broken, m.w.story(broken))
	}
}

// unconfirmedIsTold proves that acks which said nil and did not hold are reported: a process is cut off, acks, and its messages
// are another's before it is healed.
func unconfirmedIsTold(w *world) {
	a, ms := w.cutOff(10)
	heard := a.told.count()
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
		return a.told.excused(heard) >= said
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

// lapsed proves that a source which knows of leases says that one has run out: by then another has the message.
func lapsed(w *world) {
	a, ms := w.cutOff(5)
	s, ok := a.src.(broker.LeaseReporter)
	if !ok {
		w.h.skip(w, "the source is no broker.LeaseReporter")
	}
	b := w.join()
	got := b.take(5, "of a process that is cut off for longer than its lease")
	time.Sleep(w.lease) // by now a knows it, too
	for _, msg := range ms {
		if !s.Lapsed(msg.Claim, msg.Token) {
			w.Errorf("another process has message %s, and its lease has not lapsed", id(msg))
		}
	}
	_ = a.nack(0, 0, ms...)
	for _, msg := range ms {
		if s.Lapsed(msg.Claim, msg.Token) {
			w.Errorf("message %s is not out any more, and its lease has lapsed", id(msg))
		}
	}
	a.p.Heal()
	for _, msg := range got {
		_ = b.ack(msg)
	}
	w.settled()
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
