package brokertest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// current is a claim of the member that is open; it waits for one.
func (m *member) current() *broker.Claim {
	m.w.Helper()
	var open *broker.Claim
	m.w.eventually(m.name+" has an open claim", func() bool {
		cs := m.claims.list(true)
		if len(cs) > 0 {
			open = cs[0]
		}
		return open != nil
	})
	return open
}

func (w *world) ended(c *broker.Claim) {
	w.Helper()
	patience := w.h.patience()
	select {
	case <-c.Ended():
	case <-time.After(patience):
		w.Fatalf("the claim did not end within %v", patience)
	}
}

func (w *world) turned(c *broker.Claim) {
	w.Helper()
	patience := w.h.patience()
	select {
	case <-c.Revoking():
	case <-time.After(patience):
		w.Fatalf("the claim was not revoked within %v", patience)
	}
}

// pair makes two processes that have a claim each, and 2 partitions.
func (w *world) pair(opts ...option) (a, b *member) {
	w.Helper()
	a, b = w.join(opts...), w.join(opts...)
	w.eventually("both processes have one claim", func() bool {
		return len(a.claims.list(true)) == 1 && len(b.claims.list(true)) == 1
	})
	return a, b
}

// revoked proves that a claim which is taken gently ends when all that was handed out is settled, by ack or give-back, and not
// when its time is over; that these settles are nil and hold, and that the next owner gets the rest.
func revoked(w *world) {
	w.need("Revoke", w.sys.Revoke != nil)
	a, b := w.pair(budget(20, 1<<20))
	c := a.current()
	w.produce(int(c.Partition), 30)
	ms := a.take(20)
	w.sys.Revoke(w, c)
	w.turned(c)
	a.mustAck(ms[:10]...)
	a.mustNack(0, 0, ms[10:]...)
	left := time.Until(c.By())
	w.ended(c)
	if left > w.lease && !time.Now().Before(c.By()) {
		w.Errorf("the claim ended when its time was over, though all that was out of it had been settled %v before", left)
	}
	if !errors.Is(c.Cause(), broker.ErrLost) {
		w.Errorf("a revoked claim ended with the cause %v, want ErrLost", c.Cause())
	}
	if !errors.Is(c.Cause(), broker.ErrRevoked) {
		w.Errorf("a claim that was revoked in order ended with the cause %v, want ErrRevoked", c.Cause())
	}
	if err := a.src.Ack(c, []uint64{ms[0].Token}); err == nil {
		w.Error("a second Ack after the claim's end says nil")
	}
	b.mustAck(b.take(20)...)
	w.settled()
	for _, msg := range ms[:10] {
		if n := w.books.Times(id(msg)); n != 1 {
			w.Errorf("message %s was acked in time and handed out %d times", id(msg), n)
		}
	}
}

// revokedInTime proves that a claim with a handler that does not return ends when its time is over, not before; that the late ack
// says ErrLost; and that the next owner gets the message.
func revokedInTime(w *world) {
	w.need("Revoke", w.sys.Revoke != nil)
	a, b := w.pair()
	c := a.current()
	w.produce(int(c.Partition), 5)
	ms := a.take(5)
	w.sys.Revoke(w, c)
	w.turned(c)
	a.mustAck(ms[1:]...)
	w.ended(c)
	if early := time.Until(c.By()); early > 0 {
		w.Errorf("the claim ended %v before its time was over, with a message out", early)
	}
	if err := a.ack(ms[0]); !errors.Is(err, broker.ErrLost) {
		w.Errorf("an ack after the claim's end says %v, want ErrLost", err)
	}
	got := b.take(1)
	if id(got[0]) != id(ms[0]) {
		w.Errorf("the next owner got message %s, want %s", id(got[0]), id(ms[0]))
	}
	b.mustAck(got...)
	w.settled()
}

// stolen proves that a claim which is taken at once ends as soon as the process learns of it, that settles say ErrLost from then
// on, and that the next owner gets what was not settled.
func stolen(w *world) {
	w.need("Steal", w.sys.Steal != nil)
	a, b := w.pair()
	c := a.current()
	w.produce(int(c.Partition), 10)
	ms := a.take(10)
	a.mustAck(ms[:3]...)
	w.unsettled(7)
	w.sys.Steal(w, c)
	w.ended(c)
	if errors.Is(c.Cause(), broker.ErrRevoked) {
		w.Errorf("a claim that was taken at once ended with the cause %v, want no ErrRevoked", c.Cause())
	}
	for _, msg := range ms[3:6] {
		if err := a.ack(msg); !errors.Is(err, broker.ErrLost) {
			w.Errorf("an ack after the theft says %v, want ErrLost", err)
		}
	}
	if err := a.nack(0, 0, ms[6:]...); !errors.Is(err, broker.ErrLost) {
		w.Errorf("a Nack after the theft says %v, want ErrLost", err)
	}
	b.mustAck(b.take(7)...)
	w.settled()
}

// bounced proves that a claim which goes away and comes straight back loses nothing and repeats nothing that was acked: running
// handlers settle through the old claim, what is given back comes under the next one.
func bounced(w *world) {
	w.need("Bounce", w.sys.Bounce != nil)
	m := w.join(budget(20, 1<<20))
	c := m.current()
	w.produce(0, 30)
	ms := m.take(20)
	w.sys.Bounce(w, c)
	w.turned(c)
	m.mustNack(0, 0, ms[5:]...)
	m.mustAck(ms[:5]...)
	for range 5 {
		next := m.take(5)
		for _, msg := range next {
			if msg.Claim == c {
				w.Errorf("message %s came under the claim that was revoked", id(msg))
			}
		}
		m.mustAck(next...)
	}
	w.ended(c)
	w.settled()
	for _, msg := range ms[:5] {
		if n := w.books.Times(id(msg)); n != 1 {
			w.Errorf("message %s was acked through the old claim and handed out %d times", id(msg), n)
		}
	}
}

// bouncedUnderCommit proves that a commit which meets a claim's going away and coming straight back, and is refused for that,
// is made again under the next claim, although nothing else is settled there.
func bouncedUnderCommit(w *world) {
	w.need("Bounce", w.sys.Bounce != nil)
	w.need("SlowSettles", w.sys.SlowSettles != nil)
	m := w.join(budget(20, 1<<20))
	for range 3 {
		c := m.current()
		w.produce(0, 10)
		ms := m.take(10)
		w.slow(w.lease / 8)
		m.mustAck(ms...)
		time.Sleep(w.lease / 16) // the commit is under way
		w.sys.Bounce(w, c)
		w.ended(c)
		w.slow(0)
		w.settled()
	}
	w.handledOnce()
}

// bounce takes a claim of the only member, which gets the next one: gently, or where the broker cannot, by theft.
func (w *world) bounce(c *broker.Claim) {
	if w.sys.Bounce != nil {
		w.sys.Bounce(w, c)
		return
	}
	w.sys.Steal(w, c)
}

// budgetAtEnd proves that the end of a claim frees no budget: claims come and go under handlers that do not return, and what is
// out stays within the budget and is not handed out again beside them. Their late settles free it, whatever they say.
func budgetAtEnd(w *world) {
	w.need("Bounce", w.sys.Bounce != nil || w.sys.Steal != nil)
	m := w.join(budget(10, 1<<20))
	w.produce(0, 60)
	held := m.take(10)
	for range 3 {
		c := m.current()
		w.bounce(c)
		w.ended(c)
		m.current()
	}
	m.quiet(w.moment(), "the budget is used up by handlers that run")
	for _, msg := range held {
		if err := m.ack(msg); !errors.Is(err, broker.ErrLost) {
			w.Errorf("a late ack says %v, want ErrLost", err)
		}
	}
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
	w.handled()
}

// orderAcrossClaims proves that with Options.Ordered nothing is handed out under a claim while a message is out here under an
// earlier one of the same partition: it comes again, and what comes after it must not be ahead of it.
func orderAcrossClaims(w *world) {
	w.need("Bounce", w.sys.Bounce != nil || w.sys.Steal != nil)
	m := w.join(budget(40, 1<<20), ordered())
	w.produce(0, 10)
	held := m.take(10)
	c := m.current()
	w.bounce(c)
	w.ended(c)
	m.current()
	w.produce(0, 10)
	m.quiet(w.moment(), "it stands behind a message that is out here under a claim that has ended, and Options.Ordered is set")
	for _, msg := range held {
		_ = m.ack(msg) // it comes again
	}
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
	w.handled()
}

// orderAcrossRevoking proves the same while the earlier claim is revoking, where the next one begins before its end: what its
// handlers settle in that time holds, and then the rest comes.
func orderAcrossRevoking(w *world) {
	w.need("Bounce", w.sys.Bounce != nil)
	m := w.join(budget(40, 1<<20), ordered())
	w.produce(0, 10)
	held := m.take(10)
	c := m.current()
	w.sys.Bounce(w, c)
	w.turned(c)
	w.produce(0, 10)
	m.quiet(w.moment(), "it stands behind a message that is out here under a claim that is revoking, and Options.Ordered is set")
	m.mustAck(held...)
	m.mustAck(m.take(10)...)
	w.ended(c)
	w.settled()
	w.handledOnce()
}

// outAcrossClaims proves that a message which is out under a claim that has ended is not handed out under the next one: its
// handler still runs here, and two of them at once would break the order of its key. It comes when it was settled, whatever that
// said.
func outAcrossClaims(w *world) {
	w.need("Bounce", w.sys.Bounce != nil || w.sys.Steal != nil)
	m := w.join(budget(40, 1<<20))
	w.produce(0, 10)
	held := m.take(10)
	c := m.current()
	w.bounce(c)
	w.ended(c)
	next := m.current()
	m.quiet(w.moment(), "it is out here, under a claim that has ended")
	w.produce(0, 10)
	m.mustAck(m.take(10)...) // the others go on
	for _, msg := range held {
		if err := m.ack(msg); !errors.Is(err, broker.ErrLost) {
			w.Errorf("a late ack says %v, want ErrLost", err)
		}
	}
	again := m.take(10)
	for _, msg := range again {
		if msg.Claim != next {
			w.Errorf("message %s came again under another claim than the next one", id(msg))
		}
	}
	m.mustAck(again...)
	w.settled()
}

// settleRacesEnd proves that an ack which said nil holds even when the claim ends in that moment: either the last commit has it,
// or it is reported as Unconfirmed. Handlers go on acking without regard to the revocation, while commits are slow.
func settleRacesEnd(w *world) {
	w.need("Revoke", w.sys.Revoke != nil)
	a, b := w.join(chunk(32), budget(1000, 1<<20)), w.join(chunk(32), budget(1000, 1<<20))
	stop := w.ackSlowly(a, b)
	defer stop()
	for range 3 {
		var c *broker.Claim
		w.eventually("handlers have more to do than the claim in use has time", func() bool {
			if w.books.Open() <= 550 { // or a rebalance was still under way, and it was handled under claims that have turned
				w.produce(0, 700)
			}
			if c = b.claims.used(); c == nil {
				c = a.claims.used()
			}
			return c != nil && a.out()+b.out() > 550
		})
		w.slow(w.h.RevokeWait / 25) // two acks of each worker
		w.sys.Revoke(w, c)
		w.ended(c)
		w.slow(0)
	}
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	stop()
	w.handled()
}

// ackSlowly acks what comes, without regard to revocations: 700 messages take 1.75 times as long as a claim may when it is
// revoked.
func (w *world) ackSlowly(ms ...*member) (stop func()) {
	work := make(chan func(), 10_000)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for f := range work {
				time.Sleep(w.h.RevokeWait / 50)
				f()
			}
		})
	}
	var stops []func()
	for _, m := range ms {
		stops = append(stops, m.handle(func(msg *broker.Message) { work <- func() { _ = m.ack(msg) } }))
	}
	return sync.OnceFunc(func() {
		for _, f := range stops {
			f()
		}
		close(work)
		workers.Wait()
	})
}

// settleRacesClose proves the same of Close, on any broker: handlers go on acking while it commits slowly.
func settleRacesClose(w *world) {
	for range 3 {
		a := w.join(chunk(32), budget(1000, 1<<20))
		open := w.books.Open() + 200
		w.produce(0, 200) // before they are handled: a broker may take longer to store them than the handlers need for them
		stop := w.ackSlowly(a)
		defer stop()
		w.eventually("handlers have acked some, and have more to do", func() bool { return w.books.Open() <= open-24 && a.out() > 24 })
		w.slow(w.h.RevokeWait / 25)
		a.close()
		w.slow(0)
		stop()
	}
	b := w.join()
	defer b.handle(func(msg *broker.Message) { b.mustAck(msg) })()
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.handled()
}

// eventsInOrder proves that a source tells how it fares: Up when it has contact, Assigned before anything of a claim, Ended at
// its end, the claim's own channels before its event.
func eventsInOrder(w *world) {
	m := w.join()
	w.produce(0, 10)
	m.mustAck(m.take(10)...)
	w.eventually("an Up event came", func() bool { return m.told.times(broker.Up) == 1 })
	w.settled()
	m.close()
	var kinds []broker.Kind
	for _, e := range m.told.all() {
		kinds = append(kinds, e.Kind)
		if e.Kind == broker.Ended && !errors.Is(e.Claim.Cause(), broker.ErrClosed) {
			w.Errorf("at Close a claim ended with the cause %v, want ErrClosed", e.Claim.Cause())
		}
	}
	if !slices.Contains(kinds, broker.Assigned) || !slices.Contains(kinds, broker.Ended) {
		w.Errorf("events were %v, want assigned and ended among them", kinds)
	}
}

// assignedComesFirst proves that nothing of a claim is handed out before Observe has returned from its Assigned event.
func assignedComesFirst(w *world) {
	w.produce(0, 10)
	m := w.join(observing(func(e broker.Event) {
		if e.Kind == broker.Assigned {
			time.Sleep(w.moment())
		}
	}))
	m.mustAck(m.take(10)...)
	w.settled()
	w.handledOnce()
}

// observeCallsBack proves that Observe may call the source at each event: it is called with no lock held.
func observeCallsBack(w *world) {
	var m *member
	m = w.process(observing(func(broker.Event) { callBack(m.src, m.hand.atMost()) }))
	over := make(chan struct{})
	go func() {
		defer close(over)
		m.open()
		m.receive()
		w.produce(0, 20)
		m.mustAck(m.take(20)...)
		w.settled()
		m.close()
	}()
	select {
	case <-over:
	case <-time.After(2 * w.h.Patience):
		m.abandon()
		w.Fatalf("the source hangs: Observe is called with a lock held%s", w.h.stacks())
	}
	w.handledOnce()
}
