package brokertest

import (
	"time"

	"github.com/longshoremq/longshore/broker"
)

// cut proves that a connection which loses what is sent, in one direction or both, for longer than a lease, loses no message; and
// that what was acked with nil meanwhile does not come again.
func cut(d Direction) func(w *world) {
	return func(w *world) {
		m := w.process(budget(20, 1<<20))
		w.need("Cut", m.p.Cut != nil)
		w.need("Heal", m.p.Heal != nil)
		m.open()
		m.receive()
		w.produce(0, 40)
		ms := m.take(20)
		m.p.Cut(d)
		_ = m.ack(ms[:10]...)
		time.Sleep(2 * w.lease)
		_ = m.ack(ms[10:15]...)
		m.p.Heal()
		_ = m.ack(ms[15:]...)
		stop := m.handle(func(msg *broker.Message) { _ = m.ack(msg) })
		defer stop()
		w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
		w.settled()
		w.handled()
	}
}

// shortCut proves that a cut for less than a lease repeats nothing: acks are sent again, and what is out stays here.
func shortCut(w *world) {
	m := w.process(budget(20, 1<<20))
	w.need("Cut", m.p.Cut != nil)
	w.need("Heal", m.p.Heal != nil)
	m.open()
	m.receive()
	for _, d := range []Direction{ToBroker, FromBroker, Both} {
		w.produce(0, 20)
		ms := m.take(20)
		m.p.Cut(d)
		m.mustAck(ms[:10]...)
		time.Sleep(w.lease / 10)
		m.p.Heal()
		m.mustAck(ms[10:]...)
		w.settled()
	}
	w.handledOnce()
}

// killed proves that a process which dies without a goodbye loses nothing: what it had not settled comes to another, what it had
// does not.
func killed(w *world) {
	a := w.process()
	w.need("Kill", a.p.Kill != nil)
	a.open()
	a.receive()
	w.produce(0, 10)
	ms := a.take(10)
	a.mustAck(ms[:4]...)
	w.unsettled(6)
	a.kill()
	a.waitStopped("Kill")
	b := w.join()
	b.mustAck(b.take(6, "of a process that died")...)
	w.settled()
	b.quiet(w.moment(), "all was acked")
	w.handled()
	for _, msg := range ms[:4] {
		if n := w.books.Times(id(msg)); n != 1 {
			w.Errorf("message %s was settled before the kill and handed out %d times", id(msg), n)
		}
	}
}

// frozen proves that a process which stands still for longer than the lease does no harm when it goes on: another has its
// messages by then, and they stay there, whatever the first one acks or gives back.
func frozen(w *world) {
	a := w.process()
	w.need("Freeze", a.p.Freeze != nil)
	w.need("Thaw", a.p.Thaw != nil)
	a.open()
	a.receive()
	w.produce(0, 10)
	ms := a.take(10)
	a.freeze()
	b := w.join(budget(10, 1<<20)) // so that it asks for nothing more, and what is pulled from it comes to a
	mine := b.take(10)
	a.p.Thaw()
	_ = a.ack(ms[:3]...)
	_ = a.nack(0, 0, ms[3:]...)
	a.quiet(2*w.lease, "another process has it")
	b.quiet(0, "it is out here")
	for _, msg := range mine {
		_ = b.ack(msg)
	}
	w.settled()
	w.handled()
}

// downBeforeOpen proves that Open waits for a broker that is away, tells so by Down, and works once it is there.
func downBeforeOpen(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	w.produce(0, 5)
	w.sys.Down(w)
	m := w.process()
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		m.open()
	}()
	w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) > 0 })
	if m.told.times(broker.Up) > 0 {
		w.Error("an Up event came before the broker was there")
	}
	w.sys.Up(w)
	select {
	case <-opened:
	case <-time.After(w.h.Patience):
		w.Fatal("Open did not return after the broker was there")
	}
	m.receive()
	m.mustAck(m.take(5)...)
	w.settled()
	w.eventually("an Up event came", func() bool { return m.told.times(broker.Up) > 0 })
	w.handledOnce()
}

// downAgain proves that an outage which begins within a second of another's Down is told all the same, although nothing is asked
// of the source meanwhile; that one which lasts is not told each second; and that its end is told.
func downAgain(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.join(budget(20, 1<<20))
	w.eventually("an Up event came", func() bool { return m.told.times(broker.Up) == 1 })
	for i := 1; i <= 2; i++ {
		w.sys.Down(w)
		w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) >= i })
		if i == 2 {
			time.Sleep(5 * time.Second / 2) // check looks at what is told meanwhile
		}
		w.sys.Up(w)
		w.eventually("an Up event came after it", func() bool { return m.told.times(broker.Up) >= i+1 })
	}
	w.produce(0, 10)
	m.mustAck(m.take(10)...)
	w.settled()
}

// downLater proves that a source outlives its broker's absence: Receive waits, settles are kept and sent later, Down and Up tell
// of it.
func downLater(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.join(budget(20, 1<<20))
	w.produce(0, 30)
	ms := m.take(20)
	w.sys.Down(w)
	w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) > 0 })
	ups := m.told.times(broker.Up)
	_ = m.ack(ms[:10]...)
	time.Sleep(w.lease / 2)
	w.sys.Up(w)
	_ = m.ack(ms[10:]...)
	w.eventually("an Up event came after it", func() bool { return m.told.times(broker.Up) > ups })
	stop := m.handle(func(msg *broker.Message) { _ = m.ack(msg) })
	defer stop()
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.produce(0, 10)
	w.eventually("messages flow again", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.handled()
}

// downPaused proves that a source which is paused, and so asks for no messages, tells the end of an outage, too.
func downPaused(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.join()
	p, ok := m.src.(broker.Pauser)
	if !ok {
		w.h.skip(w, "the source is no broker.Pauser")
	}
	w.eventually("an Up event came", func() bool { return m.told.times(broker.Up) == 1 })
	if err := p.Pause(); err != nil {
		w.Fatalf("Pause of all: %v", err)
	}
	w.produce(0, 5)
	w.sys.Down(w)
	w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) > 0 })
	w.sys.Up(w)
	w.eventually("an Up event came after it", func() bool { return m.told.times(broker.Up) > 1 })
	m.quiet(w.moment(), "all is paused")
	if err := p.Resume(); err != nil {
		w.Errorf("Resume of all: %v", err)
	}
	m.mustAck(m.take(5)...)
	w.settled()
	w.handledOnce()
}

// downKeepsSettings proves that what was set before the broker was away holds after it: a topic that is paused stays so, and a
// budget that was made smaller is kept. An adapter that subscribes anew has to ask for both.
func downKeepsSettings(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.join(budget(40, 1<<20))
	paused, other := w.sys.Topics[0], w.sys.Topics[1]
	s, sets := m.src.(broker.Rebudgeter)
	if sets {
		m.hand.setBudget(broker.Budget{Messages: 5, Bytes: 1 << 20})
		s.SetBudget(broker.Budget{Messages: 5, Bytes: 1 << 20})
	}
	p, pauses := m.src.(broker.Pauser)
	pauses = pauses && mustPause(w, p, paused)
	if !sets && !pauses {
		w.h.skip(w, "the source sets no budget, and does not pause by topic")
	}
	w.eventually("an Up event came", func() bool { return m.told.times(broker.Up) == 1 })
	w.sys.Down(w)
	w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) > 0 })
	time.Sleep(3 * w.lease / 2) // so that what is the process's by a lease begins anew
	w.sys.Up(w)
	w.eventually("an Up event came after it", func() bool { return m.told.times(broker.Up) > 1 })
	w.produceTo(paused, 0, 20)
	w.produceTo(other, 0, 10)
	if pauses {
		w.onlyOf(m, other, 10)
		if err := p.Resume(paused); err != nil {
			w.Errorf("Resume: %v", err)
		}
	}
	ms := m.take(5)
	if sets {
		m.quiet(w.moment(), "the budget that was set before the broker was away is used up")
	}
	m.mustAck(ms...)
	defer m.handle(func(msg *broker.Message) { m.mustAck(msg) })()
	w.settled()
	w.handledOnce()
}

// downForgetsPrefetch proves that the whole budget can be used after an outage that outlasts the leases of what waits in the
// adapter: what it let go of is not counted any more.
func downForgetsPrefetch(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.process(chunk(1), budget(20, 1<<20))
	w.produce(0, 40)
	m.open()
	if !m.receiveOnce() {
		w.Fatalf("Receive: %v", m.hand.why())
	}
	first := m.take(1)
	time.Sleep(w.moment()) // so that more waits in the adapter
	ups := m.told.times(broker.Up)
	w.sys.Down(w)
	w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) > 0 })
	time.Sleep(3 * w.lease / 2)
	w.sys.Up(w)
	w.eventually("an Up event came after it", func() bool { return m.told.times(broker.Up) > ups })
	_ = m.ack(first...)
	m.receive()
	ms := m.take(20, "of a budget of 20 after an outage")
	m.quiet(w.moment(), "the budget is used up")
	_ = m.ack(ms...)
	defer m.handle(func(msg *broker.Message) { _ = m.ack(msg) })()
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.handled()
}

// onlyOf takes and acks n messages of a topic, and fails the case for one of another.
func (w *world) onlyOf(m *member, topic string, n int) {
	w.Helper()
	for range n {
		msg := m.take(1)[0]
		if msg.Topic != topic {
			w.Errorf("a message of topic %s was handed out, which was paused before the broker was away", msg.Topic)
		}
		m.mustAck(msg)
	}
	m.quiet(w.moment(), "its topic is paused")
}

// heartbeatsGoOn proves that a process whose handlers are all busy, so that nobody calls Receive, still tells the broker that it
// lives.
func heartbeatsGoOn(w *world) {
	w.need("Heartbeats", w.sys.Heartbeats != nil)
	m := w.process(chunk(4))
	m.open()
	w.produce(0, 4)
	if !m.receiveOnce() {
		w.Fatalf("Receive: %v", m.hand.why())
	}
	before := w.sys.Heartbeats(w)
	w.eventually("heartbeats go on without Receive", func() bool { return w.sys.Heartbeats(w) >= before+3 })
	m.mustAck(m.hand.untook()...)
	rest := 4 - m.hand.ever() // Receive may have given fewer than there are
	w.unsettled(int64(rest))
	if rest > 0 {
		m.receive()
		m.mustAck(m.take(rest)...)
	}
	w.settled()
}

// idle proves that a source without messages does not ask for them in a busy loop.
func idle(w *world) {
	w.need("Pulls", w.sys.Pulls != nil)
	w.join()
	time.Sleep(w.moment())
	before, begin := w.sys.Pulls(w), time.Now()
	time.Sleep(2 * w.lease)
	n, most := w.sys.Pulls(w)-before, int64(10+time.Since(begin)/(5*time.Millisecond))
	if n > most {
		w.Errorf("an idle source sent %d requests within %v", n, time.Since(begin))
	}
}

// maxDeliveries proves that a broker which drops a message after so many deliveries says so in its traits.
func maxDeliveries(w *world) {
	m := w.join()
	w.produce(0, 1)
	for range w.h.Traits.MaxDeliveries {
		m.mustNack(0, 1, m.take(1)...)
	}
	m.quiet(2*w.lease, "it has reached Traits.MaxDeliveries")
}

func needsMaxDeliveries(h *Harness) string {
	if h.Traits.MaxDeliveries == 0 {
		return "Traits.MaxDeliveries is 0: the broker never drops a message"
	}
	return needsRedelivery(h)
}

// givenBackOften proves that a message comes again however often it is given back, where Traits.MaxDeliveries is 0: brokers
// divert, or drop, what they have delivered some ten or twenty times, unless they are told not to, and then it is lost.
func givenBackOften(w *world) {
	m := w.join()
	w.produce(0, 1)
	for run := range int32(25) {
		m.mustNack(0, run+1, m.take(1)...)
	}
	m.mustAck(m.take(1)...)
	w.settled()
}

func needsEndlessDeliveries(h *Harness) string {
	if h.Traits.MaxDeliveries != 0 {
		return "Traits.MaxDeliveries is set: the broker drops a message that is given back often"
	}
	return needsRedelivery(h)
}

// atMostOnce proves that a source which cannot give back says so: Nack is ErrLost and frees budget, nothing comes again.
func atMostOnce(w *world) {
	m := w.join(budget(5, 1<<20))
	m.current()
	w.produce(0, 5)
	ms := m.take(5)
	m.mustAck(ms[:2]...)
	for _, msg := range ms[2:] {
		if err := m.nack(0, 1, msg); err == nil {
			w.Error("Nack says nil, but nothing comes again")
		}
	}
	m.quiet(2*w.lease, "nothing comes again")
	w.produce(0, 5)
	m.mustAck(m.take(5)...)
}

func needsAtMostOnce(h *Harness) string {
	if !h.Traits.AtMostOnce {
		return "Traits.AtMostOnce is not set"
	}
	return ""
}
