package natsbroker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A consumer that somebody has paused at the server is told of, once, and so is the end of it. What waits there is known to be
// held, and comes when it is resumed.
func TestPausedAtTheServer(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			ts := startServer(t)
			a := ts.admin()
			a.stream()
			cfg := pinConfig(ts.url())
			s := open(t, cfg, func(o *broker.Options) { o.Ordered = order == "key" })
			a.publish(1, 3)
			ack(t, s, receive(t, s, 3)...)
			warned, noticed := len(s.events.of(broker.Warning)), len(s.events.of(broker.Notice))
			if _, err := a.js.PauseConsumer(t.Context(), "S", "c", time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is told", func() bool { return len(s.events.of(broker.Warning)) > warned })
			a.publish(4, 6)
			eventually(t, "the lag is known to be held", func() bool {
				l := s.Lag()
				return l.Waiting == 3 && l.Held == 3 && l.Unsettled == 3
			})
			pass(t, 2*cfg.AckWait, "it is looked at again and again, and its pin is renewed")
			w := s.events.of(broker.Warning)[warned:]
			if len(w) != 1 || !strings.Contains(w[0].Err.Error(), "consumer c of stream S is paused at the server until 20") {
				t.Errorf("%d warnings, the first of them %v", len(w), w[0].Err)
			}
			if len(s.events.of(broker.Ended)) > 0 || len(s.events.of(broker.Down)) > 0 {
				t.Error("the claim has ended, or it is told as down")
			}
			if _, err := a.js.ResumeConsumer(t.Context(), "S", "c"); err != nil {
				t.Fatal(err)
			}
			ack(t, s, receive(t, s, 3)...)
			eventually(t, "the end is told", func() bool { return len(s.events.of(broker.Notice)) == noticed+1 })
			if l := s.Lag(); l.Held != 0 {
				t.Errorf("%d are held", l.Held)
			}
		})
	}
}

// One that is paused when it is opened is told of, too.
func TestOpenedWhilePaused(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	closeSource(t, open(t, config(ts.url())))
	if _, err := a.js.PauseConsumer(t.Context(), "S", "c", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	s := open(t, config(ts.url()))
	eventually(t, "it is told", func() bool { return len(s.events.of(broker.Warning)) == 1 })
}

// A source that is paused asks for no messages. That its server is back it tells all the same, once it has found its consumer
// there.
func TestUpWhilePaused(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 3)
	cfg := config(ts.url())
	cfg.Poll = time.Second // so that no look is under way when the server goes
	s := open(t, cfg)
	receive(t, s, 1)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	ts.down()
	eventually(t, "Down is told", func() bool { return len(s.events.of(broker.Down)) > 0 })
	ups := len(s.events.of(broker.Up))
	ts.up()
	eventually(t, "Up is told", func() bool { return len(s.events.of(broker.Up)) > ups })
}

// Where as many are delivered and not settled as the consumer allows, it is known: the server gives nobody more. What was given
// back for later counts.
func TestLagKnowsThatNoMoreComes(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	a := ts.admin()
	a.stream()
	cfg := pinConfig(ts.url())
	cfg.MaxAckPending = 3
	s := open(t, cfg, func(*broker.Options) {})
	if l := s.Lag(); l.Full {
		t.Errorf("%+v", l)
	}
	a.publish(1, 5)
	ms := receive(t, s, 3)
	if err := s.Nack(ms[0].Claim, []broker.Back{{Token: ms[0].Token, Delay: time.Hour, Runs: 1}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is full", func() bool { l := s.Lag(); return l.Full && l.Waiting == 2 && l.Unsettled == 5 })
	ack(t, s, ms[1:]...)
	ack(t, s, receive(t, s, 2)...)
	eventually(t, "it is full no more", func() bool { l := s.Lag(); return !l.Full && l.Unsettled == 1 })
}
