package brokertest_test

import (
	"context"
	"errors"
	"flag"
	"path"
	"slices"
	"strings"
	"sync"
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
	if got := saidBy(brokertest.Failures(t, h, "OrderAfterClose")); !strings.Contains(got,
		"which stands before it, is neither settled nor out there") {
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

// Join's cleanups take away what Close needs, a proxy for example: they run after it, also where a case is skipped or fails.
func TestCleanupsRunAfterClose(t *testing.T) {
	for name, c := range map[string]string{"skipped": "Killed", "failed": "HandedOutOnce", "passed": "GiveBack"} {
		t.Run(name, func(t *testing.T) {
			var closed, tooEarly, cleaned atomic.Bool
			h := smallest(func(s broker.Source) broker.Source {
				return &wrapped{
					Source: s,
					ack: func(s broker.Source, c *broker.Claim, tokens []uint64) error {
						if name == "failed" {
							return nil // and it is never settled
						}
						return s.Ack(c, tokens)
					},
					close: func(s broker.Source, ctx context.Context) error {
						closed.Store(true)
						return s.Close(ctx)
					},
				}
			})
			made := h.New
			h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
				sys := made(t, s)
				join := sys.Join
				sys.Join = func(t testing.TB) *brokertest.Process {
					t.Cleanup(func() {
						cleaned.Store(true)
						if !closed.Load() {
							tooEarly.Store(true)
						}
					})
					return join(t)
				}
				return sys
			}
			got := brokertest.Failures(t, h, c)
			if failed := len(got) > 0; failed != (name == "failed") {
				t.Errorf("the case said %v", got)
			}
			if !cleaned.Load() || tooEarly.Load() {
				t.Errorf("the cleanup ran: %v; before Close: %v", cleaned.Load(), tooEarly.Load())
			}
		})
	}
}

// Cases run beside each other where the harness allows it, and each of them once.
func TestSideBySide(t *testing.T) {
	if atOnce := flag.Lookup("test.parallel").Value.String(); atOnce == "1" {
		t.Skip("-parallel is 1")
	}
	names := []string{"HandedOutOnce", "Order", "GiveBack", "SettleOnce"}
	var mu sync.Mutex
	var ran []string
	t.Run("suite", func(t *testing.T) {
		h := smallest(itself)
		h.Bubble, h.SideBySide, h.Only = false, true, names
		made, all := h.New, make(chan struct{})
		h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
			mu.Lock()
			if ran = append(ran, path.Base(t.Name())); len(ran) == 2 {
				close(all)
			}
			mu.Unlock()
			<-all // until another one is under way
			return made(t, s)
		}
		brokertest.Run(t, h)
	})
	slices.Sort(ran)
	slices.Sort(names)
	if !slices.Equal(ran, names) {
		t.Errorf("there ran %v, want %v", ran, names)
	}
}

// A case that waits in vain says what each process was told.
func TestFailuresSayWhatWasSeen(t *testing.T) {
	h := smallest(func(s broker.Source) broker.Source {
		return &wrapped{Source: s, open: func(s broker.Source, ctx context.Context, o broker.Options) (broker.Traits, error) {
			traits, err := s.Open(ctx, o)
			o.Observe(broker.Event{Kind: broker.Gap, From: 3, N: 7, Err: errors.New("taken by the tide")})
			return traits, err
		}, ack: emptyAck}
	})
	got := saidBy(brokertest.Failures(t, h, "HandedOutOnce"))
	for _, want := range []string{"member 1: ", "messages were handed out", "gap, from 3, n 7: taken by the tide"} {
		if !strings.Contains(got, want) {
			t.Errorf("the suite said %q, want %q in it", got, want)
		}
	}
}

// It also says what the case did to the broker and to processes.
func TestFailuresSayWhatWasDone(t *testing.T) {
	h := smallest(itself)
	delete(h.Cannot, "Kill")
	made := h.New
	h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
		sys := made(t, s)
		join := sys.Join
		sys.Join = func(t testing.TB) *brokertest.Process {
			p := join(t)
			p.Kill = func() {} // it does not
			return p
		}
		return sys
	}
	if got := saidBy(brokertest.Failures(t, h, "Killed")); !strings.Contains(got, "member 1 is killed") {
		t.Errorf("the suite said %q", got)
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
