package brokertest

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// The cases here prove that the harness's functions do what their comments say. A Redeliver that does nothing would let each case
// pass that proves that a redelivery does no harm. Functions that are not here show by themselves: without a Kill nothing comes
// to another process.

// noEffect fails the case, and names the function.
func noEffect(t testing.TB, name, saw string) {
	t.Helper()
	t.Errorf("brokertest harness: %s has no effect: %s", name, saw)
}

// harnessRedelivers proves that Redeliver makes the broker deliver a message again: to a process that stands by, since the one
// that has it asks for nothing. The lease is long, so it does not come by that.
func harnessRedelivers(w *world) {
	w.need("Redeliver", w.sys.Redeliver != nil)
	a := w.join(chunk(1), budget(1, 1<<20))
	w.produce(0, 1)
	ms := a.take(1)
	b := w.join()
	w.sys.Redeliver(w, ms[0])
	got, _ := b.hand.take(1, w.h.patience())
	if len(got) == 0 {
		noEffect(w, "Redeliver", "a message that is out in a process whose budget is used up does not come to one that stands by")
	}
	_ = a.ack(ms...)
	if len(got) > 0 {
		_ = b.ack(got...)
	}
	w.settled()
}

// needsOneLog is the reason against a case in which one process gets what was another's, message by message.
func needsOneLog(h *Harness) string {
	if !h.NoPartitions {
		return "Harness.NoPartitions is not set: a message comes to the process that has its partition"
	}
	return needsRedelivery(h)
}

// harnessForgets proves that ForgetSettles makes the broker forget: nobody is there who would say it again.
func harnessForgets(w *world) {
	w.need("ForgetSettles", w.sys.ForgetSettles != nil)
	w.forgets = true
	a := w.join()
	w.produce(0, 20)
	a.mustAck(a.take(20)...)
	w.settled()
	a.close()
	a.fate.lose()
	w.sys.ForgetSettles(w)
	if w.sys.Unsettled(w) == 0 {
		noEffect(w, "ForgetSettles", "all is still settled after it, and no process is there")
	}
	b := w.join()
	defer b.handle(func(msg *broker.Message) { b.mustAck(msg) })()
	w.settled()
}

// harnessFails proves that FailSettles lets settles fail, and that 0 undoes it.
func harnessFails(w *world) {
	w.need("FailSettles", w.sys.FailSettles != nil)
	m := w.join()
	usual := w.timeOfSettle(m)
	w.sys.FailSettles(w, 1<<20)
	w.produce(0, 5)
	m.mustAck(m.take(5)...)
	time.Sleep(max(w.moment(), 4*usual))
	if w.sys.Unsettled(w) == 0 {
		noEffect(w, "FailSettles", "acks are settled, and all were to fail")
	}
	w.sys.FailSettles(w, 0)
	w.settled()
}

// timeOfSettle is how long it takes until the broker has an ack down.
func (w *world) timeOfSettle(m *member) time.Duration {
	w.Helper()
	w.produce(0, 5)
	ms := m.take(5)
	began := time.Now()
	m.mustAck(ms...)
	w.settled()
	return time.Since(began)
}

// harnessSlows proves that with SlowSettles a settle takes longer to come to the broker.
func harnessSlows(w *world) {
	w.need("SlowSettles", w.sys.SlowSettles != nil)
	m := w.join()
	w.timeOfSettle(m) // without it first, since nothing may be under way
	d := w.lease / 4
	w.produce(0, 5)
	ms := m.take(5)
	w.slow(d)
	began := time.Now()
	m.mustAck(ms...)
	w.settled()
	took := time.Since(began)
	w.slow(0)
	if took < d/2 {
		noEffect(w, "SlowSettles", "with exchanges that take "+d.String()+" longer the broker had an ack after "+took.String())
	}
}

// harnessCuts proves that Cut loses what is sent, in each direction, and that Heal ends it.
func harnessCuts(w *world) {
	m := w.process()
	w.need("Cut", m.p.Cut != nil)
	w.need("Heal", m.p.Heal != nil)
	m.open()
	m.receive()
	for _, d := range []Direction{ToBroker, FromBroker, Both} {
		w.produce(0, 5)
		ms := m.take(5)
		m.p.Cut(d)
		if d != FromBroker {
			_ = m.ack(ms...)
			time.Sleep(w.moment())
			if w.sys.Unsettled(w) == 0 {
				noEffect(w, "Cut", "acks arrive, and what is sent "+d.String()+" was to be lost")
			}
		}
		if d != ToBroker {
			w.produce(0, 1)
			if got, _ := m.hand.take(1, w.moment()); len(got) > 0 {
				noEffect(w, "Cut", "messages arrive, and what is sent "+d.String()+" was to be lost")
				ms = append(ms, got...)
			}
		}
		m.p.Heal()
		stop := m.handle(func(msg *broker.Message) { _ = m.ack(msg) })
		_ = m.ack(ms...)
		w.settled()
		stop()
	}
}

// harnessCounts proves that Pulls and Floors have something to tell when messages have come and were settled. (HeartbeatsGoOn
// does of Heartbeats.)
func harnessCounts(w *world) {
	m := w.join()
	w.produce(0, 10)
	m.mustAck(m.take(10)...)
	w.settled()
	if w.sys.Pulls != nil && !w.within(func() bool { return w.sys.Pulls(w) > 0 }) {
		noEffect(w, "Pulls", "messages have come, and nothing was asked for")
	}
	if w.sys.Floors != nil && !w.within(func() bool { return highest(w.sys.Floors(w)) > 0 }) {
		noEffect(w, "Floors", "messages were settled, and nothing was committed")
	}
}

// within waits for a condition, and says whether it came to hold.
func (w *world) within(cond func() bool) bool {
	for end := time.Now().Add(w.h.patience()); !cond(); time.Sleep(poll) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func highest(floors map[string][]int64) (high int64) {
	for _, of := range floors {
		for _, f := range of {
			high = max(high, f)
		}
	}
	return high
}
