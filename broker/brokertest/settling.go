package brokertest

import (
	"errors"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// settleOnce proves that a message is settled once: a second settle says ErrSettled, changes nothing, and frees no budget; beside
// a fresh message it does not keep that one from being settled.
func settleOnce(w *world) {
	m := w.join(budget(4, 1<<20))
	w.produce(0, 12)
	ms := m.take(4)
	m.mustAck(ms[0])
	if err := m.ack(ms[0]); !errors.Is(err, broker.ErrSettled) {
		w.Errorf("a second Ack: %v, want ErrSettled", err)
	}
	if err := m.nack(0, 0, ms[0]); !errors.Is(err, broker.ErrSettled) {
		w.Errorf("Nack after Ack: %v, want ErrSettled", err)
	}
	next := m.take(1) // the one place that was freed
	m.quiet(w.moment(), "no budget was freed")
	if err := m.ack(ms[0], ms[1]); !errors.Is(err, broker.ErrSettled) {
		w.Errorf("Ack of a settled message and a fresh one: %v, want ErrSettled", err)
	}
	next = append(next, m.take(1)...)
	m.quiet(w.moment(), "one message was settled")
	m.mustAck(append(next, ms[2], ms[3])...)
	m.mustAck(m.take(4)...)
	m.mustAck(m.take(2)...)
	w.settled()
	w.handledOnce()
}

// foreignClaim proves that a settle of another source's claim says ErrForeign and changes nothing: the message stays out where it
// is.
func foreignClaim(w *world) {
	a := w.join(budget(5, 1<<20))
	w.produce(0, 5)
	ms := a.take(5)
	b := w.process()
	b.open()
	c := ms[0].Claim
	if err := b.src.Ack(c, []uint64{ms[0].Token}); !errors.Is(err, broker.ErrForeign) {
		w.Errorf("Ack of another source's claim: %v, want ErrForeign", err)
	}
	if err := b.src.Nack(c, []broker.Back{{Token: ms[1].Token}}); !errors.Is(err, broker.ErrForeign) {
		w.Errorf("Nack of another source's claim: %v, want ErrForeign", err)
	}
	for _, of := range byClaim(ms) {
		if err := a.ack(of...); errors.Is(err, broker.ErrSettled) { // ErrLost where b's coming took the claim
			w.Errorf("another source's settles were taken: %v", err)
		}
	}
	for _, m := range []*member{a, b} {
		if m == b {
			b.receive()
		}
		defer m.handle(func(msg *broker.Message) { m.mustAck(msg) })()
	}
	w.settled()
	w.handled()
}

// settleOfManyAtOnce proves that settles may come from many goroutines, in any order, while messages are handed out.
func settleOfManyAtOnce(w *world) {
	m := w.join(budget(64, 1<<20), chunk(16))
	const n = 400
	w.produce(0, n/2)
	w.produce(1, n/2)
	work := make(chan *broker.Message, n)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for msg := range work {
				m.mustAck(msg)
			}
		})
	}
	stop := sync.OnceFunc(func() { close(work); workers.Wait() })
	defer stop()
	for range n {
		work <- m.take(1)[0]
	}
	stop()
	w.settled()
	w.handledOnce()
}

// giveBack proves that what is given back comes again, here as there is nobody else, and is settled then.
func giveBack(w *world) {
	m := w.join()
	w.produce(0, 10)
	ms := m.take(10)
	m.mustAck(ms[:3]...)
	m.mustNack(0, 1, ms[3:]...)
	again := m.take(7)
	want := make(map[string]bool)
	for _, msg := range ms[3:] {
		want[id(msg)] = true
	}
	for _, msg := range again {
		if !want[id(msg)] {
			w.Errorf("message %s came again, which was not given back", id(msg))
		}
	}
	m.mustAck(again...)
	w.settled()
	m.quiet(w.moment(), "all was acked")
}

// giveBackInOrder proves that what is given back, in its order, comes again in that order where there is one process: the order
// in which settles are collected and sent does not turn it round.
func giveBackInOrder(w *world) {
	m := w.join(chunk(20))
	ids := w.produce(0, 20)
	ms := m.take(20)
	m.mustNack(0, 1, ms...)
	for i, msg := range m.take(20) {
		if id(msg) != ids[i] {
			w.Fatalf("give-back %d is message %s, want %s, which was given back before it", i, id(msg), ids[i])
		}
		m.mustAck(msg)
	}
	w.settled()
}

func needsOrderAndRedelivery(h *Harness) string {
	if reason := needsOrder(h); reason != "" {
		return reason
	}
	return needsRedelivery(h)
}

// lostBeforeSettled proves that a settle of which some messages are lost and others were settled before says ErrLost: when the
// claim has ended, and when leases ran out.
func lostBeforeSettled(w *world) {
	m := w.join()
	w.produce(0, 4)
	ms := m.take(4)
	m.mustAck(ms[0])
	w.unsettled(3)
	m.close()
	mustBeLost(m, "the claim has ended", ms)
	next := w.join()
	stop := next.handle(func(msg *broker.Message) { next.mustAck(msg) })
	w.settled()
	stop()
	next.close()
	if m.p.Cut == nil || m.p.Heal == nil {
		return
	}
	a, ms := w.cutOff(4)
	_ = a.ack(ms[0])
	b := w.join(budget(4, 1<<20))
	got := b.take(4, "of a process that is cut off for longer than its lease")
	time.Sleep(w.lease) // by now a knows it, too
	mustBeLost(a, "its leases ran out, or its claim has ended", ms)
	a.p.Heal()
	for _, msg := range got {
		_ = b.ack(msg)
	}
	w.settled()
	w.handled()
}

// mustBeLost settles messages of which the first was settled before and the others are lost.
func mustBeLost(m *member, why string, ms []*broker.Message) {
	m.w.Helper()
	if err := m.ack(ms[0], ms[1], ms[2]); !errors.Is(err, broker.ErrLost) {
		m.w.Errorf("Ack of one that was settled before and two that are lost (%s) says %v, want ErrLost", why, err)
	}
	if err := m.nack(0, 0, ms[0], ms[3]); !errors.Is(err, broker.ErrLost) {
		m.w.Errorf("Nack of one that was settled before and one that is lost (%s) says %v, want ErrLost", why, err)
	}
}

// giveBackDelay proves that a message which is given back with a delay never comes before it, and does come: to this process or
// another. The delays go up to three leases, or to Traits.NativeDelay where that is shorter.
func giveBackDelay(w *world) {
	m := w.join()
	w.produce(0, 6)
	ms := m.take(6)
	longest := min(3*w.lease, w.h.Traits.NativeDelay)
	delays := []time.Duration{longest / 6, longest / 3, longest * 2 / 3, longest}
	due := make(map[string]time.Time)
	for i, d := range delays {
		due[id(ms[i])] = time.Now().Add(d)
		m.mustNack(d, 1, ms[i])
	}
	m.mustAck(ms[4:]...)
	for range delays {
		msg := m.take(1)[0]
		if early := time.Until(due[id(msg)]); early > 0 {
			w.Errorf("message %s came %v too early", id(msg), early)
		}
		m.mustAck(msg)
	}
	w.settled()
}

func needsNativeDelay(h *Harness) string {
	if h.Traits.NativeDelay <= 0 {
		return "Traits.NativeDelay is 0: the engine keeps delays"
	}
	return needsRedelivery(h)
}

// attempts proves that Message.Attempt is 1 at first and then what Traits.Attempts says of it: not above the truth, not below it,
// or the truth itself.
func attempts(w *world) {
	m := w.join()
	w.produce(0, 1)
	for try := int32(1); try <= 4; try++ {
		msg := m.take(1)[0]
		switch trust := w.h.Traits.Attempts; {
		case try == 1 && msg.Attempt != 1:
			w.Errorf("the first delivery says Attempt %d", msg.Attempt)
		case trust == broker.AtLeast && msg.Attempt > try, trust == broker.AtMost && msg.Attempt < try, trust == broker.Exact &&
			msg.Attempt != try:
			w.Errorf("try %d says Attempt %d, with Traits.Attempts %v", try, msg.Attempt, trust)
		}
		if msg.Runs > try-1 {
			w.Errorf("try %d says %d failed runs", try, msg.Runs)
		}
		if try < 4 {
			m.mustNack(0, try, msg)
			continue
		}
		m.mustAck(msg)
	}
	w.settled()
}

// uncountedGiveBacks proves that a message which is given back unhandled, by process after process as in a rolling deploy, uses
// up no runs, and no attempts either where they are not an upper bound.
func uncountedGiveBacks(w *world) {
	w.produce(0, 1)
	for i := range 5 {
		m := w.join()
		msg := m.take(1)[0]
		if msg.Runs != 0 {
			w.Errorf("after %d give-backs that no handler saw, Runs is %d", i, msg.Runs)
		}
		if w.h.Traits.Attempts != broker.AtMost && msg.Attempt != 1 {
			w.Errorf("after %d give-backs that no handler saw, Attempt is %d", i, msg.Attempt)
		}
		if i == 4 {
			m.mustAck(msg)
			break
		}
		m.mustNack(0, 0, msg)
		m.close()
	}
	w.settled()
}

// runsAreKept proves that an adapter which can keep the number of failed runs reports what it was told, and no more.
func runsAreKept(w *world) {
	m := w.join()
	w.produce(0, 2)
	ms := m.take(2)
	m.mustNack(0, 3, ms[0])
	m.mustAck(ms[1])
	msg := m.take(1)[0]
	if msg.Runs != 3 {
		w.Errorf("Runs is %d after a give-back that told 3", msg.Runs)
	}
	m.mustNack(0, 3, msg) // unhandled this time
	if msg = m.take(1)[0]; msg.Runs != 3 {
		w.Errorf("Runs is %d after a give-back that told 3 again", msg.Runs)
	}
	m.mustAck(msg)
	w.settled()
}

func needsKeptRuns(h *Harness) string {
	if !h.KeepsRuns {
		return "Harness.KeepsRuns is not set: the adapter reports no runs"
	}
	return needsRedelivery(h)
}

// redeliveredWhileOut proves that a message which the broker delivers again while it is out is not handed out, that its settle is
// nil all the same, and that it holds.
func redeliveredWhileOut(w *world) {
	w.need("Redeliver", w.sys.Redeliver != nil)
	m := w.join()
	w.produce(0, 10)
	ms := m.take(10)
	for _, msg := range ms {
		w.sys.Redeliver(w, msg)
	}
	m.quiet(w.lease/2, "it is out here")
	m.mustAck(ms...)
	w.settled()
	m.quiet(w.lease, "all was acked")
	w.handledOnce()
}

// lateGiveBack proves that a give-back which could not be said before its message was delivered here again is of the delivery
// before: it does not take the message from the handler that has it now.
func lateGiveBack(w *world) {
	w.need("Redeliver", w.sys.Redeliver != nil)
	w.need("FailSettles", w.sys.FailSettles != nil)
	a := w.join()
	w.produce(0, 1)
	first := a.take(1)
	w.sys.FailSettles(w, 1<<20)
	a.mustNack(0, 1, first...)
	w.sys.Redeliver(w, first[0])
	ms, _ := a.hand.take(1, w.moment())
	b := w.join()
	w.sys.FailSettles(w, 0)
	if len(ms) == 0 { // it may be handed out when the give-back is said, and not sooner
		b.close()
		ms = a.take(1)
		b = w.join()
	}
	b.quiet(w.moment(), "it was delivered to another process again, and given back before that")
	a.mustAck(ms...)
	w.settled()
}

// forgottenSettles proves that finished messages are not handled again when the broker forgets that they are: the process that
// finished them remembers and says so again.
func forgottenSettles(w *world) {
	w.need("ForgetSettles", w.sys.ForgetSettles != nil)
	w.forgets = true
	m := w.join()
	w.produce(0, 20)
	m.mustAck(m.take(20)...)
	w.settled()
	w.sys.ForgetSettles(w)
	m.quiet(2*w.lease, "it was finished here")
	w.settled()
	w.handledOnce()
}

// forgottenMany proves the same of as many as a broker may forget: the last 8,192.
func forgottenMany(w *world) {
	w.need("ForgetSettles", w.sys.ForgetSettles != nil)
	w.forgets = true
	const n = 8192
	m := w.join(chunk(512), budget(1024, 64<<20))
	w.produce(0, n)
	for range n / 512 {
		m.mustAck(m.take(512)...)
	}
	w.settled()
	w.sys.ForgetSettles(w)
	m.quiet(2*w.lease, "it was finished here")
	w.settled()
	w.handledOnce()
}

// failedSettles proves that a settle which the broker refuses for the moment is sent again: nil was said, so it has to hold.
func failedSettles(w *world) {
	w.need("FailSettles", w.sys.FailSettles != nil)
	m := w.join()
	w.produce(0, 20)
	ms := m.take(20)
	for i, msg := range ms {
		if i%5 == 0 {
			w.sys.FailSettles(w, 2)
		}
		m.mustAck(msg)
	}
	w.settled()
	m.quiet(w.moment(), "all was acked")
	w.handledOnce()
}

// longHandlers proves that messages which are handled for much longer than the lease, and those that wait behind them, stay with
// their process: each is handed out once, while another process stands by.
func longHandlers(w *world) {
	a := w.join(budget(5, 1<<20))
	w.eventually("the first process has a claim", func() bool { return a.told.times(broker.Assigned) > 0 })
	w.produce(0, 40)
	ms := a.take(5)
	b := w.join(budget(5, 1<<20))
	if rest, _ := b.hand.take(1, w.moment()); len(rest) > 0 {
		b.mustAck(rest...)
	}
	time.Sleep(3 * w.lease)
	for _, m := range []*member{a, b} {
		defer m.handle(func(msg *broker.Message) { m.mustAck(msg) })()
	}
	for _, of := range byClaim(ms) {
		if err := a.ack(of...); err != nil {
			w.Errorf("Ack after three leases: %v", err)
		}
	}
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.handledOnce()
}

// forgottenAtDown proves that the process remembers beyond its connection: a broker that was killed forgets acks, and its
// processes lose their connections with that.
func forgottenAtDown(w *world) {
	w.need("ForgetSettles", w.sys.ForgetSettles != nil)
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	w.forgets = true
	m := w.join()
	w.produce(0, 20)
	m.mustAck(m.take(20)...)
	w.settled()
	ups := m.told.times(broker.Up)
	w.sys.Down(w)
	w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) > 0 })
	time.Sleep(2 * w.lease)
	w.sys.Up(w)
	w.sys.ForgetSettles(w)
	w.eventually("an Up event came after it", func() bool { return m.told.times(broker.Up) > ups })
	m.quiet(2*w.lease, "it was finished here")
	w.settled()
	w.handledOnce()
}
