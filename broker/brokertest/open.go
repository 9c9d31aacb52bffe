package brokertest

import (
	"context"
	"errors"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// badOptions proves that Open says at once what is wrong with its options, also while the broker is away.
func badOptions(w *world) {
	if w.sys.Down != nil && w.sys.Up != nil {
		w.sys.Down(w)
		defer w.sys.Up(w)
	}
	for what, spoil := range map[string]func(o *broker.Options){
		"a budget of no messages": func(o *broker.Options) { o.Budget.Messages = 0 },
		"a budget of no bytes":    func(o *broker.Options) { o.Budget.Bytes = 0 },
		"a negative budget":       func(o *broker.Options) { o.Budget.Messages, o.Budget.Bytes = -1, -1 },
		"no Observe":              func(o *broker.Options) { o.Observe = nil },
	} {
		m := w.process()
		o := broker.Options{Budget: m.hand.atMost(), Observe: m.saw}
		spoil(&o)
		ctx, cancel := within(w.h.Patience)
		if _, err := m.src.Open(ctx, o); refusedAtOnce(err) != nil {
			w.Errorf("Open with %s: %v", what, refusedAtOnce(err))
		}
		cancel()
		m.close()
	}
}

// refusedAtOnce returns what is wrong with the error of an Open that cannot succeed.
func refusedAtOnce(err error) error {
	switch {
	case err == nil:
		return errors.New("it says nil")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("it tries on until its ctx ends")
	case errors.Is(err, broker.ErrClosed):
		return errors.New("it says ErrClosed")
	}
	return nil
}

// misconfigured proves that Open returns an error of configuration that the broker can tell, and does not try on.
func misconfigured(w *world) {
	w.need("Misconfigured", w.sys.Misconfigured != nil)
	m := w.adopt(&Process{Source: w.sys.Misconfigured(w)})
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	if wrong := refusedAtOnce(m.tryOpen(ctx)); wrong != nil {
		w.Errorf("Open with a configuration that the broker refuses: %v", wrong)
	}
	m.close()
}

// awaitsOthers proves that Open claims nothing while the other sources of its consumer are not there: until they are, all goes to
// another process.
func awaitsOthers(w *world) {
	arrived, others := make(chan struct{}), make(chan struct{})
	a := w.process(awaiting(func(ctx context.Context) error {
		close(arrived) // once, or it panics
		select {
		case <-others:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}))
	ctx, cancel := within(4 * w.h.Patience)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- a.tryOpen(ctx) }()
	w.awaited(arrived, opened)
	b := w.join()
	w.produce(0, 10)
	b.mustAck(b.take(10, "for who waits for the other sources claims nothing")...)
	if n := a.told.times(broker.Assigned); n > 0 {
		w.Errorf("%d claims began before the other sources were there", n)
	}
	close(others)
	b.close()
	select {
	case err := <-opened:
		if err != nil {
			w.Fatalf("Open, when the other sources were there: %v", err)
		}
	case <-time.After(w.h.Patience):
		w.Fatal("Open did not return when the other sources were there")
	}
	a.receive()
	w.produce(10, 10)
	a.mustAck(a.take(10, "for the other sources are there")...)
	a.close()
}

// awaited waits until an Open calls Await.
func (w *world) awaited(arrived <-chan struct{}, opened <-chan error) {
	w.Helper()
	select {
	case <-arrived:
	case err := <-opened:
		w.Fatalf("Open returned %v, and has not called Options.Await", err)
	case <-time.After(w.h.Patience):
		w.Fatal("Open has not called Options.Await")
	}
}

// awaitFails proves that the error of Await is Open's, and that Close ends an Open that waits there.
func awaitFails(w *world) {
	other := errors.New("another source cannot be opened")
	m := w.process(awaiting(func(context.Context) error { return other }))
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	if err := m.tryOpen(ctx); !errors.Is(err, other) {
		w.Errorf("Open says %v, want what Await said: %v", err, other)
	}
	m.close()

	arrived := make(chan struct{})
	m = w.process(awaiting(func(ctx context.Context) error { close(arrived); <-ctx.Done(); return context.Cause(ctx) }))
	opened := make(chan error, 1)
	go func() { opened <- m.tryOpen(context.Background()) }()
	w.awaited(arrived, opened)
	m.close()
	select {
	case err := <-opened:
		if !errors.Is(err, broker.ErrClosed) {
			w.Errorf("Open beside Close: %v, want ErrClosed", err)
		}
	case <-time.After(w.h.Patience):
		w.Error("Open, which waits for the other sources, did not return after Close")
	}
}

// openTwice proves that a second Open says ErrOpened and changes nothing: the source goes on for whoever opened it.
func openTwice(w *world) {
	m := w.join()
	before := m.traits
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	if err := m.tryOpen(ctx); !errors.Is(err, broker.ErrOpened) {
		w.Errorf("Open of a source that is open: %v, want ErrOpened", err)
	}
	m.traits = before
	w.produce(0, 5)
	m.mustAck(m.take(5)...)
	w.settled()
}

// receiveFails proves that a Receive which fails for good says so each time, and ends pulling alone: what is out stays claimed,
// while another process stands by, and acks are nil and hold.
func receiveFails(w *world) {
	m := w.process()
	w.need("EndReceive", m.p.EndReceive != nil)
	m.open()
	m.receive()
	w.produce(0, 5)
	ms := m.take(5)
	m.p.EndReceive()
	m.waitStopped("EndReceive")
	if _, err := m.hand.take(1, 0); err == nil || errors.Is(err, broker.ErrClosed) {
		w.Fatalf("brokertest harness: EndReceive has no effect: Receive says %v", err)
	}
	if n, err := m.src.Receive(make([]broker.Message, 1)); n != 0 || err == nil {
		w.Errorf("Receive has failed for good, and returns %d, %v when it is called again", n, err)
	}
	before := w.sys.Unsettled(w)
	if w.h.NoPartitions {
		w.join().quiet(2*w.lease, "it is out in a process whose Receive has failed, and which is not closed")
	} else {
		time.Sleep(2 * w.lease)
	}
	m.mustAck(ms...)
	w.unsettled(before - int64(len(ms)))
	m.close()
}
