package brokertest

import (
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// settlesDoNotWait proves that Ack, Nack, Lag and Stop do not wait for the network: the connection is slow and cut off, and half
// of the calls of each have to return long before anything could have been answered. (Half of them, for a process may get no
// processor now and then.)
func settlesDoNotWait(w *world) {
	const n = 40
	m := w.process(budget(2*n, 1<<20), chunk(2*n))
	w.need("Cut", m.p.Cut != nil)
	w.need("Heal", m.p.Heal != nil)
	m.open()
	m.receive()
	w.produce(0, 2*n)
	ms := m.take(2 * n)
	w.slow(w.lease / 4)
	m.p.Cut(Both)
	w.atOnce("Ack", n, func(i int) { _ = m.ack(ms[i]) })
	w.atOnce("Nack", n, func(i int) { _ = m.nack(0, 0, ms[n+i]) })
	if s, ok := m.src.(broker.LagReporter); ok {
		w.atOnce("Lag", n, func(int) { s.Lag() })
	}
	w.atOnce("Stop", n, func(int) { m.src.Stop() })
	w.slow(0)
	m.p.Heal()
	m.close()
	next := w.join()
	defer next.handle(func(msg *broker.Message) { _ = next.ack(msg) })()
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.handled()
}

// atOnce fails the case when half of n calls take part of an exchange's time.
func (w *world) atOnce(what string, n int, call func(i int)) {
	w.Helper()
	took := make([]time.Duration, n)
	for i := range took {
		begin := time.Now()
		call(i)
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	if half := took[n/2]; half > w.lease/50 {
		w.Errorf("%s waits for the network, or for something that does: while the connection was slow and cut off, half of %d calls "+
			"took %v and more", what, n, half)
	}
}

// drain acks what comes to a process that stands by, until nothing comes for a moment, and returns how many they were.
func (m *member) drain() (n int) {
	m.w.Helper()
	for {
		ms, _ := m.hand.take(1, m.w.moment())
		if len(ms) == 0 {
			return n
		}
		m.mustAck(ms...)
		n++
	}
}

// prefetchStays proves that leases of messages which Receive has not returned yet are extended: they wait in the adapter for some
// leases, while another process stands by, and each is handed out once, by its first delivery.
func prefetchStays(w *world) {
	a := w.process(chunk(1), budget(20, 1<<20))
	w.produce(0, 20)
	a.open()
	if !a.receiveOnce() {
		w.Fatalf("Receive: %v", a.hand.why())
	}
	first := a.take(1)
	b := w.join(budget(20, 1<<20))
	b.drain()
	b.quiet(3*w.lease, "another process has prefetched it")
	a.receive()
	a.mustAck(first...)
	w.ackAll([]*member{a, b}, func(msg *broker.Message) { // of both: a group may move a partition when b joins
		if msg.Attempt != 1 {
			w.Errorf("message %s waited in the adapter and says Attempt %d: its lease was not extended", id(msg), msg.Attempt)
		}
	})
	w.handledOnce()
}

// prefetchAfterLease proves that what waits in the adapter is not handed out when its lease has run out: another process has it
// by then, and may handle it now.
func prefetchAfterLease(w *world) {
	a := w.process(chunk(1), budget(20, 1<<20))
	w.need("Cut", a.p.Cut != nil)
	w.need("Heal", a.p.Heal != nil)
	w.produce(0, 20)
	a.open()
	if !a.receiveOnce() {
		w.Fatalf("Receive: %v", a.hand.why())
	}
	first := a.take(1)
	a.p.Cut(Both)
	b := w.join(budget(20, 1<<20)) // so that it asks for nothing more, and what is pulled from it comes to a
	got := b.take(20, "of a process that is cut off for longer than its lease")
	a.receive()
	a.quiet(w.moment(), "its lease has run out, and another process has it")
	a.p.Heal()
	a.quiet(w.lease, "another process has it")
	_ = a.ack(first...)
	for _, msg := range got {
		_ = b.ack(msg)
	}
	w.settled()
	w.handled()
}

// prefetchBounded proves that an adapter whose prefetch takes leases takes no more than the budget, of messages or of bytes: the
// rest comes to another process. It may be twice as much here, for an answer may bring more than was asked for.
func prefetchBounded(w *world) {
	const n, most, each = 40, 10, 1000
	for _, limit := range []broker.Budget{{Messages: most, Bytes: 64 << 20}, {Messages: 1000, Bytes: most * each}} {
		a := w.process(chunk(1), budget(limit.Messages, limit.Bytes))
		w.sys.Produce(w, 0, w.filled(w.sys.Topics[0], n, each)...)
		a.open()
		if !a.receiveOnce() {
			w.Fatalf("Receive: %v", a.hand.why())
		}
		first := a.take(1)
		b := w.join()
		if has := n - b.drain(); has > 2*most {
			w.Errorf("with a budget of %+v a process has %d messages of %d bytes and more", limit, has, each)
		}
		a.mustAck(first...)
		a.receive()
		w.ackAll([]*member{a, b}, func(*broker.Message) {})
		a.close()
		b.close()
	}
	w.handledOnce()
}

// ackAll acks what comes to several processes until all is settled.
func (w *world) ackAll(ms []*member, look func(*broker.Message)) {
	w.Helper()
	for _, m := range ms {
		defer m.handle(func(msg *broker.Message) {
			look(msg)
			m.mustAck(msg)
		})()
	}
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
}

// failedForLong proves that acks which the broker refuses for longer than a lease hold: their messages stay with the process,
// which lives and tries on, and do not come to another.
func failedForLong(w *world) {
	w.need("FailSettles", w.sys.FailSettles != nil)
	a := w.join(budget(20, 1<<20))
	w.produce(0, 20)
	ms := a.take(20)
	a.src.Stop() // it would pass over what comes again to itself
	b := w.join()
	w.sys.FailSettles(w, 30)
	a.mustAck(ms...)
	b.quiet(2*w.lease, "it was acked by a process that lives and tries on")
	w.settled()
	w.handledOnce()
}

// ordered sets Options.Ordered.
func ordered() option { return func(m *member) { m.ordered = true } }

// stopInOrder proves that with Options.Ordered nothing is given back at Stop that stands behind a message still out, and all of
// it when that one is settled.
func stopInOrder(w *world) {
	a, b, first, left := w.behind()
	a.src.Stop()
	b.quiet(w.moment(), "it stands behind a message that is out in a process that has stopped, and Options.Ordered is set")
	a.mustAck(first...)
	if !w.h.StopHandsOver {
		a.close()
	}
	b.mustAck(b.take(left, "which stood behind a message that is settled now")...)
	w.settled()
	w.handledOnce()
}

// pauseInOrder proves the same of Pause.
func pauseInOrder(w *world) {
	a, b, first, left := w.behind()
	p, ok := a.src.(broker.Pauser)
	if !ok {
		w.h.skip(w, "the source is no broker.Pauser")
	}
	if err := p.Pause(); err != nil {
		w.Fatalf("Pause of all: %v", err)
	}
	b.quiet(w.moment(), "it stands behind a message that is out in a process that has paused, and Options.Ordered is set")
	a.mustAck(first...)
	if w.h.StopHandsOver {
		b.mustAck(b.take(left, "which stood behind a message that is settled now")...)
	} else {
		if err := p.Resume(); err != nil {
			w.Errorf("Resume of all: %v", err)
		}
		a.receive()
		w.ackAll([]*member{a, b}, func(*broker.Message) {})
	}
	w.settled()
	w.handledOnce()
}

// behind makes a process with Options.Ordered that has one message out and may have prefetched left ones behind it; another,
// which stands by, has acked the rest.
func (w *world) behind() (a, b *member, first []*broker.Message, left int) {
	w.Helper()
	a = w.process(chunk(1), budget(64, 1<<20), ordered())
	w.produce(0, 20)
	a.open()
	if !a.receiveOnce() {
		w.Fatalf("Receive: %v", a.hand.why())
	}
	first = a.take(1)
	b = w.join(ordered())
	return a, b, first, 19 - b.drain()
}

// giveBackRepeated proves that a give-back which the broker has done, and whose answer got lost, takes the message from nobody
// when it is said again: another process has it by then, whose delivery it is not of. The first process has stopped, so that
// nothing is asked for in its name. Its Close says what is left to say; a message that comes after it shows that there is more to
// be had then.
func giveBackRepeated(w *world) {
	a := w.process(budget(2, 1<<20))
	w.need("Cut", a.p.Cut != nil)
	w.need("Heal", a.p.Heal != nil)
	a.open()
	a.receive()
	w.produce(0, 2)
	ms := a.take(2)
	a.src.Stop()
	a.p.Cut(FromBroker)
	a.mustNack(0, 1, ms[0])
	b := w.join(budget(1, 1<<20)) // so what is taken from it does not come back to it
	got, _ := b.hand.take(1, 4*w.h.Lease)
	if len(got) == 0 {
		w.h.skip(w, "the give-back did not reach the broker while its answers got lost: the adapter waits for another one")
	}
	a.p.Heal()
	a.mustAck(ms[1])
	w.unsettled(1)
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	_ = a.closeCtx(ctx) // it may tell that it never heard of the give-back
	c := w.join()
	marker := w.produce(0, 1)
	next := c.take(1)
	if id(next[0]) != marker[0] {
		c.fail("message %s was handed out, but another process has it, and it was given back before that", id(next[0]))
	}
	c.quiet(w.moment(), "another process has it, and it was given back before that")
	c.mustAck(next...)
	b.mustAck(got...)
	w.settled()
	w.handled()
}
