package kit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A counter is the skeleton of a source: its broker has the numbers 1, 2, 3, … and forgets what was settled.
type counter struct {
	life   *kit.Life
	events *kit.EventQueue
	wake   kit.Bell

	mu      sync.Mutex
	gate    kit.Gate
	pauses  kit.Pauses
	stopped bool
	claim   *broker.Claim
	keeper  broker.Keeper
	last    int64
}

func newCounter() *counter {
	s := &counter{life: kit.NewLife("counter"), events: kit.NewEventQueue(), wake: kit.NewBell()}
	s.claim, s.keeper = broker.NewClaim("numbers", -1, s)
	return s
}

func (s *counter) Open(_ context.Context, o broker.Options) (broker.Traits, error) {
	if err := s.life.Begin(o); err != nil {
		return broker.Traits{}, err
	}
	s.gate.SetBudget(o.Budget)
	s.events.Observe(o.Observe)
	if err := s.life.Launch(func(run func(func())) { run(func() { s.events.Run(s.life.Context()) }) }); err != nil {
		return broker.Traits{}, err
	}
	s.events.Say(broker.Event{Kind: broker.Assigned, Claim: s.claim})
	s.events.Tell() // before anything is handed out
	return broker.Traits{}, nil
}

func (s *counter) Receive(dst []broker.Message) (int, error) {
	for {
		n, err := s.fill(dst)
		if n > 0 || err != nil {
			return n, err
		}
		<-s.wake
	}
}

func (s *counter) fill(dst []broker.Message) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return 0, fmt.Errorf("counter: receiving: %w", broker.ErrClosed)
	}
	room, _, ok := s.gate.Room()
	if !ok || s.pauses.Has("numbers") {
		return 0, nil
	}
	n := min(room, len(dst))
	for i := range n {
		s.last++
		dst[i] = broker.Message{Topic: "numbers", Offset: s.last, Token: uint64(s.last), Claim: s.claim}
	}
	s.gate.HandOut(n, 0)
	return n, nil
}

func (s *counter) Ack(_ *broker.Claim, tokens []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.Free(len(tokens), 0)
	if wake, _ := s.gate.Feed(); wake { // this one's budgets are small: Refill has nothing to do
		s.wake.Ring()
	}
	return nil
}

func (s *counter) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.life.Stop()
	s.wake.Ring()
}

func (s *counter) Close(context.Context) error {
	s.Stop()
	return s.life.Close(func() error {
		s.keeper.End(broker.ErrClosed)
		s.events.Say(broker.Event{Kind: broker.Ended, Claim: s.claim, Err: broker.ErrClosed})
		return nil
	}, func() {})
}

// The parts of a source, put together.
func Example() {
	s := newCounter()
	observe := func(e broker.Event) { fmt.Println(e.Kind) }
	_, _ = s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 2, Bytes: 100}, Observe: observe})
	dst := make([]broker.Message, 10)
	for range 2 {
		n, _ := s.Receive(dst)
		for _, m := range dst[:n] {
			fmt.Println("message", m.Offset)
			_ = s.Ack(m.Claim, []uint64{m.Token})
		}
	}
	s.Stop()
	_, err := s.Receive(dst)
	fmt.Println(errors.Is(err, broker.ErrClosed))
	_ = s.Close(context.Background())
	// Output:
	// assigned
	// message 1
	// message 2
	// message 3
	// message 4
	// true
	// ended
}
