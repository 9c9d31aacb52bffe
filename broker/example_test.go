package broker_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// listSource is about the smallest adapter there is: it hands out a list, once. It shows who does what; an adapter of a real
// broker passes package brokertest.
type listSource struct {
	list   []string
	budget broker.Budget
	keeper broker.Keeper
	say    func(broker.Event)

	mu      sync.Mutex
	freed   *sync.Cond // something was settled, or Stop
	next    int
	state   map[uint64]bool // by token: settled
	out     int
	stopped bool
	fenced  bool
}

func (s *listSource) Open(_ context.Context, o broker.Options) (broker.Traits, error) {
	s.freed = sync.NewCond(&s.mu)
	s.state, s.budget, s.say = make(map[uint64]bool), o.Budget, o.Observe
	var c *broker.Claim
	c, s.keeper = broker.NewClaim("list", -1, nil)
	s.say(broker.Event{Kind: broker.Up})
	s.say(broker.Event{Kind: broker.Assigned, Claim: c})
	return broker.Traits{AtMostOnce: true}, nil
}

func (s *listSource) Receive(dst []broker.Message) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped && (s.next == len(s.list) || s.out >= s.budget.Messages) {
		s.freed.Wait() // not pulling is all the back-pressure there is
	}
	if s.stopped {
		return 0, broker.ErrClosed
	}
	for n < len(dst) && s.next < len(s.list) && s.out < s.budget.Messages {
		token := uint64(s.next)
		dst[n] = broker.Message{Topic: "list", Partition: -1, Offset: -1, Value: []byte(s.list[s.next]), Attempt: 1, Token: token,
			Claim: s.keeper.Claim()}
		s.state[token] = false
		s.next, s.out, n = s.next+1, s.out+1, n+1
	}
	return n, nil
}

func (s *listSource) Ack(_ *broker.Claim, tokens []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, t := range tokens {
		if settled, known := s.state[t]; settled || !known {
			err = broker.ErrSettled
			continue
		}
		s.state[t], s.out = true, s.out-1 // the budget is freed whatever Ack returns
	}
	s.freed.Signal()
	if s.fenced {
		return broker.ErrLost // wins over ErrSettled
	}
	return err
}

func (s *listSource) Nack(c *broker.Claim, back []broker.Back) error {
	for _, b := range back {
		_ = s.Ack(c, []uint64{b.Token})
	}
	return broker.ErrLost // nothing comes again here, and it says so
}

func (s *listSource) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.freed != nil { // Stop may come before Open
		s.freed.Broadcast()
	}
}

func (s *listSource) Close(context.Context) error {
	s.Stop()
	s.mu.Lock()
	again := s.fenced || s.freed == nil
	s.fenced = true
	s.mu.Unlock()
	if again {
		return nil
	}
	s.keeper.End(broker.ErrClosed) // after the fence, with no lock held
	s.say(broker.Event{Kind: broker.Ended, Claim: s.keeper.Claim(), Err: broker.ErrClosed})
	return nil
}

// The life of a source as the engine drives it: open, receive, settle each message once, stop, close.
func ExampleSource() {
	ctx := context.Background()
	var s broker.Source = &listSource{list: []string{"a", "b", "c"}}
	_, err := s.Open(ctx, broker.Options{
		Budget:  broker.Budget{Messages: 2, Bytes: 1 << 20},
		Observe: func(e broker.Event) { fmt.Println("event:", e.Kind) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for handled := 0; handled < 3; {
		chunk := make([]broker.Message, 8)
		n, err := s.Receive(chunk)
		if err != nil {
			fmt.Println(err)
			return
		}
		tokens := make([]uint64, n)
		for i, m := range chunk[:n] {
			fmt.Printf("handled %s\n", m.Value)
			tokens[i] = m.Token
		}
		if err := s.Ack(chunk[0].Claim, tokens); err != nil {
			fmt.Println(err)
		}
		handled += n
	}
	s.Stop()
	_ = s.Close(ctx)
	// Output:
	// event: up
	// event: assigned
	// handled a
	// handled b
	// handled c
	// event: ended
}

// A claim's keeper stays with the adapter; the engine sees the claim only.
func ExampleNewClaim() {
	claim, keeper := broker.NewClaim("orders", 3, nil)
	fmt.Println("may start:", claim.Startable())
	keeper.Revoke(time.Now().Add(time.Second)) // running handlers have a second
	fmt.Println("may start:", claim.Startable())
	keeper.End(fmt.Errorf("partition 3 went to another process: %w", broker.ErrLost))
	<-claim.Ended()
	fmt.Println(claim.Cause())
	// Output:
	// may start: true
	// may start: false
	// partition 3 went to another process: broker: claim lost
}
