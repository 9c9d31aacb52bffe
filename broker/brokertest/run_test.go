package brokertest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/membroker"
)

// smallest is a harness with the required functions only, over a source that wrap may change.
func smallest(wrap func(broker.Source) broker.Source) brokertest.Harness {
	return brokertest.Harness{
		Lease: 200 * time.Millisecond, Patience: 2 * time.Second, Bubble: true, KeepsRuns: true, Operations: true,
		Traits: broker.Traits{Ordered: true, Together: true},
		New: func(t testing.TB, s brokertest.Setup) *brokertest.System {
			lease := 200 * time.Millisecond
			if s.Lease != 0 {
				lease = s.Lease
			}
			topics := []string{"first", "second"}[:s.Topics]
			b := membroker.New(membroker.Config{Partitions: s.Partitions, Lease: lease})
			b.Source(membroker.SourceConfig{Topics: topics}) // the group's progress counts from here
			return &brokertest.System{
				Topics: topics,
				Join: func(testing.TB) *brokertest.Process {
					return &brokertest.Process{Source: wrap(b.Source(membroker.SourceConfig{Topics: topics,
						RevokeWait: 400 * time.Millisecond}))}
				},
				Produce: func(t testing.TB, partition int, ms ...broker.Outgoing) {
					if err := b.ProduceTo(partition, ms...); err != nil {
						t.Fatal(err)
					}
				},
				Unsettled: func(testing.TB) int64 { return b.Unsettled("group") },
			}
		},
		Cannot: map[string]string{
			"Revoke": "not here", "Steal": "not here", "Bounce": "not here", "Redeliver": "not here", "ForgetSettles": "not here",
			"FailSettles": "not here", "Trim": "not here", "Recreate": "not here", "Undecodable": "not here", "Down": "not here",
			"Cut": "not here", "Kill": "not here", "Freeze": "not here", "Heartbeats": "not here", "Pulls": "not here",
			"Publisher": "not here",
			"Floors":    "not here", "SlowSettles": "not here", "Misconfigured": "not here", "EndReceive": "not here",
		},
	}
}

func itself(s broker.Source) broker.Source { return s }

// An adapter whose harness can do nothing but what is required still runs most of the suite, and the rest is skipped.
func TestSmallestHarness(t *testing.T) { brokertest.Run(t, smallest(itself)) }

// What is missing without a reason fails, so that nothing is left out by oversight.
func TestMissingWithoutReason(t *testing.T) {
	h := smallest(itself)
	delete(h.Cannot, "Kill")
	got := brokertest.Failures(t, h)
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names,
		[]string{"HarnessIsWhole", "Killed", "LeaseIsHeeded", "OrderAfterKill"}) {
		t.Errorf("failed: %v, want HarnessIsWhole and the cases that need Kill", names)
	}
	if text := strings.Join(got["Killed"], " "); !strings.Contains(text, `Harness.Cannot["Kill"]`) {
		t.Errorf("it said %q, which does not name what is missing", text)
	}
}

// A panic in a case is a failure of that case: the others run, and it is said where it was.
func TestPanicIsAFailure(t *testing.T) {
	h := smallest(itself)
	start := h.New
	h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
		if s.Topics == 2 {
			panic("no second topic")
		}
		return start(t, s)
	}
	got := brokertest.Failures(t, h)
	if text := strings.Join(got["SeveralTopics"], " "); !strings.Contains(text, "panic: no second topic") {
		t.Errorf("SeveralTopics said %q", text)
	}
	if _, failed := got["AtLeastOnce"]; failed {
		t.Errorf("a case with one topic failed: %q", got["AtLeastOnce"])
	}
}

// What no case needs by itself has to be there, or excused, as well.
func TestMissingForNoCase(t *testing.T) {
	for _, name := range []string{"Floors", "SlowSettles"} {
		h := smallest(itself)
		delete(h.Cannot, name)
		if got := saidBy(brokertest.Failures(t, h)); !strings.Contains(got, `Harness.Cannot["`+name+`"]`) {
			t.Errorf("without %s the suite said %q", name, got)
		}
	}
}

func saidBy(failures map[string][]string) string {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		said = append(said, failures[name]...)
	}
	return strings.Join(said, "\n")
}

func TestCasesAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range brokertest.Cases() {
		if seen[name] || name == "" {
			t.Errorf("case %q is there twice", name)
		}
		seen[name] = true
	}
}

// A decorator that breaks one promise each; the suite has to see it in whatever case it looks at.
type wrapped struct {
	broker.Source
	receive func(s broker.Source, dst []broker.Message) (int, error)
	ack     func(s broker.Source, c *broker.Claim, tokens []uint64) error
	open    func(s broker.Source, ctx context.Context, o broker.Options) (broker.Traits, error)
	close   func(s broker.Source, ctx context.Context) error
}

func (w *wrapped) Receive(dst []broker.Message) (int, error) {
	if w.receive != nil {
		return w.receive(w.Source, dst)
	}
	return w.Source.Receive(dst)
}

func (w *wrapped) Ack(c *broker.Claim, tokens []uint64) error {
	if w.ack != nil {
		return w.ack(w.Source, c, tokens)
	}
	return w.Source.Ack(c, tokens)
}

func (w *wrapped) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	if w.open != nil {
		return w.open(w.Source, ctx, o)
	}
	return w.Source.Open(ctx, o)
}

func (w *wrapped) Close(ctx context.Context) error {
	if w.close != nil {
		return w.close(w.Source, ctx)
	}
	return w.Source.Close(ctx)
}

func TestWhatHoldsInEveryCase(t *testing.T) {
	saying := func(say func(e broker.Event, observe func(broker.Event))) *wrapped {
		return &wrapped{open: func(s broker.Source, ctx context.Context, o broker.Options) (broker.Traits, error) {
			observe := o.Observe
			o.Observe = func(e broker.Event) { say(e, observe) }
			return s.Open(ctx, o)
		}}
	}
	hiding := func(kind broker.Kind) *wrapped {
		return saying(func(e broker.Event, observe func(broker.Event)) {
			if e.Kind != kind {
				observe(e)
			}
		})
	}
	twice := func(kind broker.Kind) *wrapped {
		return saying(func(e broker.Event, observe func(broker.Event)) {
			if observe(e); e.Kind == kind {
				observe(e)
			}
		})
	}
	changing := func(change func(m *broker.Message)) *wrapped {
		return &wrapped{receive: func(s broker.Source, dst []broker.Message) (int, error) {
			n, err := s.Receive(dst)
			for i := range dst[:n] {
				change(&dst[i])
			}
			return n, err
		}}
	}
	deliveries := 0
	for name, tc := range map[string]struct {
		w    func() *wrapped
		says string
	}{
		"messages with an error": {func() *wrapped {
			return &wrapped{receive: func(s broker.Source, dst []broker.Message) (int, error) {
				n, err := s.Receive(dst)
				if err == nil {
					err = errors.New("beside")
				}
				return n, err
			}}
		}, "with the error beside"},
		"nothing without an error": {func() *wrapped {
			return &wrapped{receive: func(s broker.Source, dst []broker.Message) (int, error) { return 0, nil }}
		}, "returned n = 0"},
		"order": {func() *wrapped {
			return &wrapped{receive: func(s broker.Source, dst []broker.Message) (int, error) {
				n, err := s.Receive(dst)
				slices.Reverse(dst[:n])
				return n, err
			}}
		}, "came after"},
		"what stood in dst before": {func() *wrapped {
			return &wrapped{receive: func(s broker.Source, dst []broker.Message) (int, error) {
				before := slices.Clone(dst)
				n, err := s.Receive(dst)
				for i := range dst[:n] {
					dst[i].Runs = before[i].Runs
				}
				return n, err
			}}
		}, "stood in dst before"},
		"no Assigned":             {func() *wrapped { return hiding(broker.Assigned) }, "before its claim's Assigned"},
		"no Ended":                {func() *wrapped { return hiding(broker.Ended) }, "without an Ended event"},
		"an error of its own":     {func() *wrapped { return &wrapped{ack: badAck} }, "want nil, ErrLost or ErrSettled"},
		"a nil that did not hold": {func() *wrapped { return &wrapped{ack: emptyAck} }, "unsettled"},
		"attempt 0":               {func() *wrapped { return changing(func(m *broker.Message) { m.Attempt = 0 }) }, "Attempt 0"},
		"no name": {func() *wrapped { return changing(func(m *broker.Message) { m.Offset, m.Name = -1, "" }) },
			"neither Offset nor ID"},
		"a name of its own each time": {func() *wrapped {
			return changing(func(m *broker.Message) { deliveries++; m.Offset, m.Name = -1, fmt.Sprint(deliveries) })
		}, "and said"},
		"Assigned twice":            {func() *wrapped { return twice(broker.Assigned) }, "Assigned twice"},
		"Ended twice":               {func() *wrapped { return twice(broker.Ended) }, "a claim Ended twice"},
		"Ended of an unknown claim": {func() *wrapped { return hiding(broker.Assigned) }, "not Assigned before"},
		"an event without a reason": {func() *wrapped {
			return saying(func(e broker.Event, observe func(broker.Event)) { e.Err = nil; observe(e) })
		}, "event ended has no Err"},
		"other traits": {func() *wrapped {
			return &wrapped{open: func(s broker.Source, ctx context.Context, o broker.Options) (broker.Traits, error) {
				_, err := s.Open(ctx, o)
				return broker.Traits{Ordered: true, Together: true, MaxDeliveries: 3}, err
			}}
		}, "want Harness.Traits"},
		"a budget of its own": {func() *wrapped {
			return &wrapped{open: func(s broker.Source, ctx context.Context, o broker.Options) (broker.Traits, error) {
				o.Budget.Messages *= 2
				return s.Open(ctx, o)
			}}
		}, "the budget is"},
		"a Close that fails": {func() *wrapped {
			return &wrapped{close: func(s broker.Source, ctx context.Context) error {
				return errors.Join(s.Close(ctx), errors.New("not closed"))
			}}
		}, "not closed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := smallest(func(s broker.Source) broker.Source {
				w := tc.w()
				w.Source = s
				return w
			})
			got := brokertest.Failures(t, h, "HandedOutOnce", "BudgetMessages", "GiveBack")
			if text := saidBy(got); !strings.Contains(text, tc.says) {
				t.Errorf("the suite said %q, want %q in it", text, tc.says)
			}
		})
	}
}

// A publish that nobody confirmed may arrive yet: beside the next try of it.
func TestPublishArrivesLate(t *testing.T) {
	h := smallest(itself)
	start := h.New
	h.New = func(t testing.TB, s brokertest.Setup) *brokertest.System {
		sys := start(t, s)
		p := &late{store: func(ms []broker.Outgoing) { sys.Produce(t, 0, ms...) }}
		sys.Publisher = func(testing.TB) broker.Publisher { return p }
		sys.Down, sys.Up = func(testing.TB) { p.down = true }, func(testing.TB) { p.down = false }
		return sys
	}
	if said := saidBy(brokertest.Failures(t, h, "PublishWhileDown")); said != "" {
		t.Errorf("the suite said %q", said)
	}
}

// late is a publisher whose first try behind an outage arrives with the second.
type late struct {
	store func([]broker.Outgoing)
	down  bool
	first []broker.Outgoing
}

func (p *late) Publish(_ context.Context, ms []broker.Outgoing) error {
	switch {
	case p.down:
		return errors.New("down")
	case p.first == nil:
		p.first = ms
		return errors.New("not confirmed")
	}
	p.store(append(p.first, ms...))
	return nil
}

func (p *late) Close(context.Context) error { return nil }

func badAck(s broker.Source, c *broker.Claim, tokens []uint64) error {
	return errors.Join(s.Ack(c, tokens), errors.New("of its own"))
}

func emptyAck(broker.Source, *broker.Claim, []uint64) error { return nil }

// With a harness and one test an adapter is checked; this is all of it.
func ExampleRun() {
	harness := brokertest.Harness{
		New: func(testing.TB, brokertest.Setup) *brokertest.System {
			return nil /* topics, Join, Produce, Unsettled, and what can be had */
		},
		Lease:  200 * time.Millisecond,
		Cannot: map[string]string{"Revoke": "a subscription is never revoked"},
	}
	_ = func(t *testing.T) { brokertest.Run(t, harness) } // func TestConformance
}
