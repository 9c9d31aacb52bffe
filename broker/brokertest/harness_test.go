package brokertest_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// A pattern that matches no goroutine would let any leak pass.
func TestGoroutinesHaveToMatch(t *testing.T) {
	h := smallest(itself)
	h.Goroutines = []string{"no/such/package."}
	got := saidBy(brokertest.Failures(t, h, "NoGoroutineLeft"))
	if !strings.Contains(got, `Harness.Goroutines ["no/such/package."] match something`) {
		t.Errorf("the suite said %q", got)
	}
}

// A broker that keeps no order says so, and the case does not apply; the same one fails it without.
func TestUnordered(t *testing.T) {
	h := smallest(func(s broker.Source) broker.Source {
		return &wrapped{Source: s, receive: func(s broker.Source, dst []broker.Message) (int, error) {
			n, err := s.Receive(dst)
			slices.Reverse(dst[:n])
			return n, err
		}}
	})
	if got := brokertest.Failures(t, h, "Order"); len(got) == 0 {
		t.Error("the case passes although messages come in no order")
	}
	h.Unordered = true
	if got := brokertest.Failures(t, h, "Order"); len(got) != 0 {
		t.Errorf("the case does not apply, and said %v", got)
	}
}

// A process that takes over and begins with later messages breaks the order that was kept before.
func TestOrderAfterClose(t *testing.T) {
	var closed atomic.Bool
	h := smallest(func(s broker.Source) broker.Source {
		return &wrapped{
			Source: s,
			receive: func(s broker.Source, dst []broker.Message) (int, error) {
				n, err := s.Receive(dst)
				if closed.Load() {
					slices.Reverse(dst[:n])
				}
				return n, err
			},
			close: func(s broker.Source, ctx context.Context) error {
				closed.Store(true)
				return s.Close(ctx)
			},
		}
	})
	if got := saidBy(brokertest.Failures(t, h, "OrderAfterClose")); !strings.Contains(got, "which stands before it, is neither settled nor out there") {
		t.Errorf("the suite said %q", got)
	}
}

// Only the cases run that Only names.
func TestOnly(t *testing.T) {
	ran := 0
	h := smallest(itself)
	h.Only = []string{"Order", "GiveBack"}
	before := h.New
	h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
		ran++
		return before(t, s)
	}
	brokertest.Run(t, h)
	if ran != 2 {
		t.Errorf("%d cases ran, want 2", ran)
	}
}

// Observe is called with a lock held that Lag takes: the case says so, in real time, and comes to an end.
func TestObserveWithLockHeld(t *testing.T) {
	over := make(chan struct{})
	h := smallest(func(s broker.Source) broker.Source {
		return &locked{Source: s, over: over, lock: make(chan struct{}, 1)}
	})
	h.Bubble, h.Patience = false, 200*time.Millisecond
	got := saidBy(brokertest.Failures(t, h, "ObserveCallsBack"))
	close(over) // lets go of what hangs
	if !strings.Contains(got, "Observe is called with a lock held") {
		t.Errorf("the suite said %q", got)
	}
}

// locked calls Observe with its lock held.
type locked struct {
	broker.Source
	lock, over chan struct{}
}

func (l *locked) take() bool {
	select {
	case l.lock <- struct{}{}:
		return true
	case <-l.over:
		return false
	}
}

func (l *locked) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	observe := o.Observe
	o.Observe = func(e broker.Event) {
		if l.take() {
			observe(e)
			<-l.lock
		}
	}
	return l.Source.Open(ctx, o)
}

func (l *locked) Lag() broker.Lag {
	if l.take() {
		<-l.lock
	}
	return broker.UnknownLag()
}

func (l *locked) Close(ctx context.Context) error {
	if l.take() {
		<-l.lock
	}
	return l.Source.Close(ctx)
}

// A goroutine that outlives its case in a bubble is named with the case, and the other cases go on.
func TestGoroutineLeftInBubble(t *testing.T) {
	h := smallest(func(s broker.Source) broker.Source {
		return &wrapped{Source: s, close: func(s broker.Source, ctx context.Context) error {
			go leftBehind(make(chan struct{}))
			return s.Close(ctx)
		}}
	})
	got := brokertest.Failures(t, h, "HandedOutOnce", "Order")
	for _, name := range []string{"HandedOutOnce", "Order"} {
		if text := strings.Join(got[name], " "); !strings.Contains(text, "case "+name+": goroutines of the source are left behind") {
			t.Errorf("of %s the suite said %q", name, text)
		}
	}
}

// leftBehind is known to TestMain: nothing can end a goroutine of a bubble whose test is over.
func leftBehind(never chan struct{}) { <-never }
