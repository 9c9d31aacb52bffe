package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// openLimited is a source on a consumer that somebody has made with a max_deliver.
func openLimited(t *testing.T, a *admin, cfg natsbroker.Config, maxDeliver int) *opened {
	t.Helper()
	cc := cfg.Durable(false)
	cc.MaxDeliver = maxDeliver
	if _, err := a.js.CreateConsumer(t.Context(), "S", cc); err != nil {
		t.Fatal(err)
	}
	return open(t, cfg)
}

// A message runs here for so long, with its connection away, that it is delivered for the last time. When it fails it comes
// again, here, as that attempt: given back, the server would drop it, and there would be no dead letter.
func TestDeliveredForTheLastTimeWhileItRuns(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait, cfg.MaxReconnectWait = time.Second, 100*time.Millisecond
	s := openLimited(t, a, cfg, 2)
	extended := must(a.nc.SubscribeSync("$JS.ACK.S.c.2.>"))
	m := receive(t, s, 1)[0]
	p.shut()
	pass(t, 2*cfg.AckWait, "its lease runs out")
	p.heal()
	if _, err := extended.NextMsg(patience); err != nil {
		t.Fatalf("the second delivery is not extended: %v", err)
	}
	const delay = 200 * time.Millisecond
	at := time.Now()
	if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token, Delay: delay, Runs: 1}}); err != nil {
		t.Fatal(err)
	}
	again := receive(t, s, 1)[0]
	if d := time.Since(at); d < delay {
		t.Errorf("it came again after %v, before %v", d, delay)
	}
	if again.Attempt != 2 || again.Runs != 1 || string(again.Value) != "1" || again.Token == m.Token {
		t.Errorf("it came again as %+v", again)
	}
	if err := s.Ack(again.Claim, []uint64{again.Token}); err != nil && !errors.Is(err, broker.ErrLost) { // on a slow machine
		t.Error(err)
	}
	a.settled()
}

// The same by a whole consumer: it becomes a dead letter.
func TestDeadLetterAfterTheLastDelivery(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	if _, err := a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"d"}}); err != nil {
		t.Fatal(err)
	}
	p := startProxy(t, ts.opts.Port)
	cfg := config(p.url())
	cfg.AckWait, cfg.MaxReconnectWait = time.Second, 100*time.Millisecond
	cc := cfg.Durable(false)
	cc.MaxDeliver = 2
	if _, err := a.js.CreateConsumer(t.Context(), "S", cc); err != nil {
		t.Fatal(err)
	}
	extended := must(a.nc.SubscribeSync("$JS.ACK.S.c.2.>"))
	began, goOn := make(chan struct{}), make(chan struct{})
	var runs atomic.Int32
	c, err := consumer.New(consumer.Config{
		Source: must(natsbroker.NewSource(cfg)), Logger: zerolog.Nop(),
		DeadLetter: &consumer.DeadLetter{Publisher: newPublisher(t, ts.url()), Topic: "d"},
		Retry:      consumer.Retry{MaxAttempts: 100, Backoff: consumer.Backoff{Initial: 10 * time.Millisecond}},
		Handler: func(context.Context, *consumer.Message) error {
			if runs.Add(1) == 1 {
				close(began)
				<-goOn
			}
			return errors.New("no")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	<-began
	p.shut()
	pass(t, 2*cfg.AckWait, "its lease runs out")
	p.heal()
	if _, err := extended.NextMsg(patience); err != nil {
		t.Errorf("the second delivery is not extended: %v", err)
	}
	close(goOn)
	eventually(t, "there is a dead letter", func() bool {
		d, err := a.js.Stream(t.Context(), "D")
		return err == nil && d.CachedInfo().State.Msgs == 1
	})
	a.settled()
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if n := runs.Load(); n != 2 {
		t.Errorf("it ran %d times", n)
	}
}

// What is given back at its last delivery by who could begin it no more comes again, here, for it would come nowhere.
func TestGivenBackAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	s := openLimited(t, a, config(ts.url()), 1)
	for range 3 {
		m := receive(t, s, 1)[0]
		if m.Attempt != 1 || string(m.Value) != "1" {
			t.Errorf("it came as %+v", m)
		}
		if err := s.Nack(m.Claim, []broker.Back{{Token: m.Token}}); err != nil {
			t.Fatal(err)
		}
	}
	ack(t, s, receive(t, s, 1)...)
	a.settled()
}

// What waits here at its last delivery stays here while the source is paused.
func TestPausedAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 5)
	cfg := config(ts.url())
	cfg.AckWait = 6 * time.Second
	s := openLimited(t, a, cfg, 1)
	ms := receive(t, s, 1)
	eventually(t, "the others are here", func() bool { return a.info().Delivered.Stream == 5 })
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	ack(t, s, ms...)
	extended := must(a.nc.SubscribeSync("$JS.ACK.S.c.1.5.>"))
	for range 2 {
		if m, err := extended.NextMsg(patience); err != nil || string(m.Data) != "+WPI" {
			t.Fatalf("what waits is not extended: %v, %v", m, err)
		}
	}
	if n := a.info().NumAckPending; n != 4 {
		t.Errorf("%d messages are unsettled while it is paused, want 4", n)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	ack(t, s, receive(t, s, 4)...)
	a.settled()
}

// A stop can keep nothing. What is given back then the server drops, and that is told.
func TestStoppedAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 5)
	s := openLimited(t, a, config(ts.url()), 1)
	ms := receive(t, s, 2)
	eventually(t, "the others are here", func() bool { return a.info().Delivered.Stream == 5 })
	warned := func(n int) func() bool {
		return func() bool {
			for _, e := range s.events.of(broker.Warning) {
				if strings.Contains(e.Err.Error(), fmt.Sprintf("max_deliver is 1, and %d messages", n)) {
					return true
				}
			}
			return false
		}
	}
	s.Stop()
	eventually(t, "it is told of what waited", warned(3))
	if err := s.Nack(ms[0].Claim, []broker.Back{{Token: ms[0].Token}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is told of what was given back", warned(1))
	ack(t, s, ms[1])
	closeSource(t, s)
	d := drainAll(open(t, config(ts.url())))
	a.settled() // the server finds out when it is asked for them
	d.stop(t)
	if n, _ := d.seen(); n > 0 {
		t.Errorf("%d messages came again, and the warning is wrong", n)
	}
}
