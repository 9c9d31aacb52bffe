package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// longLease is a lease that does not run out within a case.
const longLease = 2 * time.Minute

// stopRacesReceive proves that a Stop which meets Receive in any state loses nothing: what was handed out is settled, what was
// not goes back, in process after process.
func stopRacesReceive(w *world) {
	const rounds, n = 8, 60
	for i := range rounds {
		m := w.join(chunk(1 + i))
		w.produce(0, n)
		taken := m.take(1 + 5*i%n)
		for range 3 {
			go m.src.Stop()
		}
		m.waitStopped("Stop")
		rest, err := m.hand.take(1000, 0)
		if !errors.Is(err, broker.ErrClosed) {
			w.Errorf("after Stop Receive returned %v, want ErrClosed", err)
		}
		m.mustAck(append(taken, rest...)...)
		m.close()
	}
	m := w.join()
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
	w.handledOnce()
}

// stopKeepsWhatIsOut proves that what is out when Stop is called stays with its process, however long it takes, and is acked with
// nil.
func stopKeepsWhatIsOut(w *world) {
	a := w.join(budget(5, 1<<20))
	w.produce(0, 5)
	ms := a.take(5)
	a.src.Stop()
	a.src.Stop()
	b := w.join()
	b.quiet(5*w.lease/2, "it is out in a process that has stopped and not ended")
	a.mustAck(ms...)
	w.settled()
	w.handledOnce()
}

// stoppedTakesNoClaim proves that a process which has stopped and is not closed takes none of the claims of one that leaves, not
// even for a moment: it keeps what it has out, and who comes next gets the rest.
func stoppedTakesNoClaim(w *world) {
	a, b := w.pair(budget(20, 1<<20))
	mine, others := a.current(), b.current()
	w.produce(int(mine.Partition), 1)
	running := a.take(1)
	a.src.Stop()
	w.produce(int(others.Partition), 5)
	b.mustNack(0, 0, b.take(5)...)
	before := a.told.times(broker.Assigned)
	b.close()
	time.Sleep(w.moment())
	c := w.join()
	a.mustAck(running...)
	if n := a.told.times(broker.Assigned) - before; n > 0 {
		w.Errorf("a process that has stopped was told of %d new claims", n)
	}
	a.close()
	c.mustAck(c.take(5, "of a process that has left")...)
	w.settled()
}

// stoppedAndBounced proves the same of a claim that goes away from a process which has stopped and comes straight back: what is
// out is settled through the old one, and there is no new one.
func stoppedAndBounced(w *world) {
	w.need("Bounce", w.sys.Bounce != nil)
	a := w.join(budget(5, 1<<20))
	w.produce(0, 10)
	ms := a.take(5)
	a.src.Stop()
	before := a.told.times(broker.Assigned)
	w.sys.Bounce(w, ms[0].Claim)
	a.mustAck(ms...)
	w.unsettled(5)
	time.Sleep(w.moment())
	if n := a.told.times(broker.Assigned) - before; n > 0 {
		w.Errorf("a process that has stopped was told of %d new claims", n)
	}
	a.close()
	b := w.join()
	b.mustAck(b.take(5)...)
	w.settled()
	w.handledOnce()
}

// stopReturns proves that what Receive has not returned goes back to the broker at Stop (or at Close, where Harness.StopHandsOver
// is not set), and not when a lease runs out: the lease is long here.
func stopReturns(w *world) {
	a := w.process(chunk(1), budget(64, 1<<20))
	w.produce(0, 50)
	a.open()
	if !a.receiveOnce() {
		w.Fatalf("Receive: %v", a.hand.why())
	}
	first := a.take(1)
	a.src.Stop()
	b := w.join()
	if w.h.StopHandsOver {
		b.mustAck(b.take(49, "which Stop has to give back, for Harness.StopHandsOver is set and the lease does not run out here")...)
		a.mustAck(first...)
	} else {
		a.mustAck(first...)
		a.close()
		b.mustAck(b.take(49, "which Close has to give back, for the lease does not run out here")...)
	}
	w.settled()
	w.handledOnce()
}

// stopBeforeOpen proves that Stop may come first: nothing is handed out then.
func stopBeforeOpen(w *world) {
	w.produce(0, 5)
	m := w.process()
	m.src.Stop()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	if err := m.tryOpen(ctx); err != nil {
		if !errors.Is(err, broker.ErrClosed) {
			w.Errorf("Open after Stop: %v, want nil or ErrClosed", err)
		}
	} else if n, err := m.src.Receive(make([]broker.Message, 4)); n != 0 || !errors.Is(err, broker.ErrClosed) {
		w.Errorf("Receive after Stop returned %d, %v, want ErrClosed", n, err)
	}
	m.close()
	w.unsettled(5)
}

// receiveAfterStop proves that Receive says ErrClosed after Stop, each time, although there are messages.
func receiveAfterStop(w *world) {
	m := w.process()
	m.open()
	m.src.Stop()
	w.produce(0, 5)
	for range 3 {
		if n, err := m.src.Receive(make([]broker.Message, 4)); n != 0 || !errors.Is(err, broker.ErrClosed) {
			w.Errorf("Receive after Stop returned %d, %v, want ErrClosed", n, err)
		}
	}
	m.close()
	if n, err := m.src.Receive(make([]broker.Message, 4)); n != 0 || !errors.Is(err, broker.ErrClosed) {
		w.Errorf("Receive after Close returned %d, %v, want ErrClosed", n, err)
	}
}

// fencedBeforeEnd proves that settles say ErrLost before a claim's end shows: who acks when he sees it is never told nil, for no
// commit would have it.
func fencedBeforeEnd(w *world) {
	const n = 40
	a := w.join()
	w.produce(0, n)
	ms := a.take(n)
	var all sync.WaitGroup
	for _, msg := range ms {
		all.Go(func() {
			<-msg.Claim.Ended()
			_ = a.ack(msg) // which looks at what it says
		})
	}
	a.close()
	all.Wait()
	b := w.join()
	b.mustAck(b.take(n, "which Close has to give back, for the lease does not run out here")...)
	w.settled()
	w.handled()
}

// closeTwiceBesideAck proves that Close may be called by several goroutines while others settle: all calls return the same,
// settles say nil or ErrLost, what said nil holds, and all else comes again at once, while the lease is long.
func closeTwiceBesideAck(w *world) {
	a := w.join(chunk(64))
	const n = 200
	w.produce(0, n)
	ms := a.take(n)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := i; j < n; j += 4 {
				if err := a.ack(ms[j]); err != nil && !errors.Is(err, broker.ErrLost) {
					w.Errorf("Ack beside Close: %v", err)
				}
			}
		})
	}
	var mu sync.Mutex
	var results []error
	for range 3 {
		all.Go(func() {
			ctx, cancel := within(w.h.Patience)
			defer cancel()
			err := a.closeCtx(ctx)
			mu.Lock()
			results = append(results, err)
			mu.Unlock()
		})
	}
	all.Wait()
	for _, err := range results {
		if err != nil {
			w.Errorf("Close: %v", err)
		}
	}
	b := w.join()
	stop := b.handle(func(msg *broker.Message) { b.mustAck(msg) })
	defer stop()
	w.settled()
	w.handled()
}

// closeWaits proves that a second Close waits for the first, also when its own ctx has ended, and returns the same. The first
// cannot return while the broker is away, if it has something to say to it.
func closeWaits(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	m := w.join(budget(5, 1<<20))
	w.produce(0, 5)
	ms := m.take(5)
	w.sys.Down(w)
	_ = m.ack(ms...)
	first, second := make(chan error, 1), make(chan error, 1)
	long, cancel := within(w.h.Patience)
	defer cancel()
	go func() { first <- m.closeCtx(long) }()
	w.ended(ms[0].Claim)
	past, end := context.WithCancel(context.Background())
	end()
	go func() { second <- m.closeCtx(past) }()
	var errs [2]error
	select {
	case errs[1] = <-second:
		select {
		case errs[0] = <-first:
		case <-time.After(w.moment()):
			w.Errorf("a second Close returned %v while the first was still under way", errs[1])
			w.sys.Up(w)
			errs[0] = <-first
		}
	case <-time.After(w.moment()):
		w.sys.Up(w)
		errs[0], errs[1] = <-first, <-second
	}
	w.sys.Up(w)
	if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
		w.Errorf("two calls of Close returned %v and %v, want the same", errs[0], errs[1])
	}
	next := w.join()
	defer next.handle(func(msg *broker.Message) { next.mustAck(msg) })()
	w.settled()
	w.handled()
}

// closeBesideOpen proves that Close ends an Open that waits for a broker: Open says ErrClosed.
func closeBesideOpen(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	w.sys.Down(w)
	m := w.process()
	opened := make(chan error, 1)
	ctx, cancel := within(2 * w.h.Patience)
	defer cancel()
	go func() { opened <- m.tryOpen(ctx) }()
	w.eventually("a Down event came", func() bool { return m.told.times(broker.Down) > 0 })
	m.close()
	select {
	case err := <-opened:
		if !errors.Is(err, broker.ErrClosed) {
			w.Errorf("Open beside Close: %v, want ErrClosed", err)
		}
	case <-time.After(w.h.Patience):
		w.Error("Open did not return after Close")
	}
	w.sys.Up(w)
}

// closeGivesBack proves that Close without Stop gives back at once what is not settled, while the lease is long; that settles
// which come later say ErrLost, and that Close again says the same.
func closeGivesBack(w *world) {
	a := w.join()
	w.produce(0, 10)
	ms := a.take(10)
	a.mustAck(ms[:4]...)
	a.close()
	a.close()
	if err := a.ack(ms[4:6]...); !errors.Is(err, broker.ErrLost) {
		w.Errorf("Ack after Close says %v, want ErrLost", err)
	}
	if err := a.nack(0, 0, ms[6:]...); !errors.Is(err, broker.ErrLost) {
		w.Errorf("Nack after Close says %v, want ErrLost", err)
	}
	b := w.join()
	b.mustAck(b.take(6, "which Close has to give back, for the lease does not run out here")...)
	w.settled()
	w.handled()
}

// closeBeforeOpen proves that a source can be closed that never opened, and that Open says so afterwards.
func closeBeforeOpen(w *world) {
	m := w.process()
	m.close()
	m.close()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	if err := m.tryOpen(ctx); !errors.Is(err, broker.ErrClosed) {
		w.Errorf("Open after Close: %v, want ErrClosed", err)
	}
	m.close()
}

// openDeadline proves that Open tries on while the broker is away, with a Down event, until its ctx ends, and says so by ctx's
// error; and that Stop and Close may follow.
func openDeadline(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	w.sys.Down(w)
	m := w.process()
	ctx, cancel := within(w.lease)
	defer cancel()
	if err := m.tryOpen(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("Open without a broker: %v, want context.DeadlineExceeded", err)
	}
	if m.told.times(broker.Down) == 0 {
		w.Error("Open tried without a Down event")
	}
	m.src.Stop()
	m.close()
	m.close()
}

// closeInTime proves that Close returns when its ctx ends, even while the broker is away: claims have ended, settles say ErrLost.
// The messages come again to others later.
func closeInTime(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	a := w.join()
	w.produce(0, 5)
	ms := a.take(5)
	c := ms[0].Claim
	a.mustAck(ms[0])
	w.unsettled(4)
	w.sys.Down(w)
	ctx, cancel := within(w.lease / 2)
	defer cancel()
	_ = a.closeCtx(ctx) // an error or none: what matters is that it returns
	w.ended(c)
	if err := a.ack(ms[1:]...); !errors.Is(err, broker.ErrLost) {
		w.Errorf("Ack after Close says %v, want ErrLost", err)
	}
	w.sys.Up(w)
	b := w.join()
	b.mustAck(b.take(4)...)
	w.settled()
}

// closeWithPastDeadline proves that Close with a ctx that has ended already still ends the claims and returns.
func closeWithPastDeadline(w *world) {
	a := w.join()
	w.produce(0, 3)
	c := a.take(3)[0].Claim
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.closeCtx(ctx)
	w.ended(c)
	b := w.join()
	b.mustAck(b.take(3)...)
	w.settled()
}

// stoppedAndDown proves that a process which has stopped asks for nothing when it has lost its connection and found it again: who
// comes next gets all, each by its first delivery, though no lease runs out.
func stoppedAndDown(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	a := w.join()
	w.produce(0, 5)
	a.mustAck(a.take(5)...)
	w.settled()
	a.src.Stop()
	w.sys.Down(w)
	time.Sleep(w.h.Lease) // it need not tell: there is nothing that it would ask
	w.sys.Up(w)
	time.Sleep(w.h.Lease)
	w.produce(0, 10)
	time.Sleep(w.moment())
	b := w.join()
	ms := b.take(10, "which a process that has stopped takes from nobody")
	for _, msg := range ms {
		if msg.Attempt != 1 {
			w.Errorf("message %s says Attempt %d: a process that has stopped has had it", id(msg), msg.Attempt)
		}
	}
	b.mustAck(ms...)
	w.settled()
	w.handledOnce()
}

// pauseKeepsWhatIsOut proves that what is out while all is paused, or its claim is held, stays with its process, however long it
// takes.
func pauseKeepsWhatIsOut(w *world) {
	a := w.join(budget(5, 1<<20))
	p, pauses := a.src.(broker.Pauser)
	s, holds := a.src.(broker.Holder)
	if !pauses && !holds {
		w.h.skip(w, "the source is neither a broker.Pauser nor a broker.Holder")
	}
	w.produce(0, 5)
	ms := a.take(5)
	b := w.join()
	if pauses {
		if err := p.Pause(); err != nil {
			w.Fatalf("Pause of all: %v", err)
		}
		b.quiet(5*w.lease/2, "it is out in a process that has paused")
		if err := p.Resume(); err != nil {
			w.Errorf("Resume of all: %v", err)
		}
	}
	if holds {
		s.Hold(ms[0].Claim, time.Now().Add(time.Hour))
		b.quiet(5*w.lease/2, "it is out under a claim that is held")
	}
	a.mustAck(ms...)
	w.settled()
	w.handledOnce()
}
