package natsbroker_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// atRest waits until the server has nothing more to give for what it was asked.
func atRest(a *admin) {
	a.t.Helper()
	last, since := uint64(0), time.Now()
	eventually(a.t, "deliveries come to rest", func() bool {
		if d := a.info().Delivered.Consumer; d != last {
			last, since = d, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}

// The server never has more out than the budget's messages; SetBudget moves it.
func TestBudgetMessages(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 100)
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = 10 })
	ms := receive(t, s, 10)
	atRest(a)
	if n := a.info().NumAckPending; n != 10 {
		t.Fatalf("%d messages are out, with a budget of 10", n)
	}
	ack(t, s, ms[:3]...)
	ms = append(ms[3:], receive(t, s, 3)...)
	atRest(a)
	if n := a.info().NumAckPending; n != 10 {
		t.Fatalf("%d messages are out, with a budget of 10", n)
	}
	s.SetBudget(broker.Budget{Messages: 20, Bytes: 1 << 20})
	ms = append(ms, receive(t, s, 10)...)
	s.SetBudget(broker.Budget{Messages: 200, Bytes: 1 << 20})
	ack(t, s, append(ms, receive(t, s, 77)...)...)
	a.settled()
}

// Nor more bytes than the budget's and one message.
func TestBudgetBytes(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	payload := bytes.Repeat([]byte("x"), 10_000)
	for range 50 {
		if _, err := a.js.Publish(context.Background(), "s.b", payload); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget = broker.Budget{Messages: 1000, Bytes: 100_000} })
	for left := 50; left > 0; {
		eventually(t, "something is out", func() bool { return a.info().NumAckPending > 0 })
		atRest(a)
		n := a.info().NumAckPending
		if n > 11 {
			t.Fatalf("%d messages of 10 kB are out, with a budget of 100 kB", n)
		}
		ack(t, s, receive(t, s, n)...)
		left -= n
	}
	a.settled()
}

// A message larger than the whole budget comes alone.
func TestBudgetOneLargeMessage(t *testing.T) {
	ts, a := serveStream(t)
	for _, n := range []int{10, 900_000, 20, 900_000} {
		if _, err := a.js.Publish(context.Background(), "s.c", make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget = broker.Budget{Messages: 1000, Bytes: 10_000} })
	for range 4 {
		ack(t, s, receive(t, s, 1)...)
	}
	a.settled()
}

// Messages of an earlier claim keep their budget until they are settled. Who waits for it may have messages here by then, and
// nothing else need come that would wake it.
func TestBudgetThatAnEarlierClaimFrees(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 8)
	cfg := config(ts.url())
	cfg.Recreate, cfg.AckWait = true, 10*time.Minute
	s := open(t, cfg, func(o *broker.Options) { o.Budget.Messages = 10 })
	old := receive(t, s, 8)
	if err := a.js.DeleteConsumer(context.Background(), "S", "c"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another claim begins", func() bool { return len(s.events.of(broker.Assigned)) == 2 })
	a.publish(9, 10)
	eventually(t, "all has been delivered", func() bool { return a.info().NumAckPending == 10 })
	s.SetBudget(broker.Budget{Messages: 5, Bytes: 1 << 20})
	came := make(chan int, 1)
	go func() {
		n, _ := s.Receive(make([]broker.Message, 10))
		came <- n
	}()
	pass(t, 200*time.Millisecond, "Receive waits for budget")
	var tokens []uint64
	for _, m := range old {
		tokens = append(tokens, m.Token)
	}
	if err := s.Ack(old[0].Claim, tokens); !errors.Is(err, broker.ErrLost) {
		t.Errorf("Ack under a claim that has ended: %v", err)
	}
	select {
	case n := <-came:
		if n == 0 {
			t.Error("Receive ended")
		}
	case <-time.After(patience):
		t.Error("what is here is not handed out, though there is budget")
	}
}
