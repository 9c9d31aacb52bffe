package natsbroker

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// A fakeTime has a monotonic clock, which stands still in a sleep, and one on the wall.
type fakeTime struct{ mono, wall time.Duration }

func (f *fakeTime) clock() clock {
	return clockOf(func() (int64, int64) { return int64(f.mono), int64(f.wall) })
}

func TestClock(t *testing.T) {
	for name, c := range map[string]struct{ mono, wall, want time.Duration }{
		"time passes":             {time.Minute, time.Minute, time.Minute},
		"the machine slept":       {time.Second, time.Hour, time.Hour},
		"the wall was set back":   {time.Minute, -time.Hour, time.Minute},
		"the wall was set right":  {time.Minute, time.Minute + 900*time.Millisecond, time.Minute},
		"nothing but a set clock": {0, -time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeTime{wall: 1000 * time.Hour}
			k := f.clock()
			f.mono, f.wall = f.mono+c.mono, f.wall+c.wall
			if n := time.Duration(k.now()); n != c.want {
				t.Errorf("%v have passed, want %v", n, c.want)
			}
			f.mono, f.wall = f.mono+time.Second, f.wall+time.Second
			if n := time.Duration(k.now()); n != c.want+time.Second {
				t.Errorf("%v have passed after another second, want %v", n, c.want+time.Second)
			}
		})
	}
}

// While a machine is suspended the server counts on, and gives what is here to another process: what is given back after that
// takes nothing away from that one.
func TestSuspended(t *testing.T) {
	s, err := NewSource(Config{Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.life.events.Observe(func(broker.Event) {})
	s.held.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 100_000}})
	f := &fakeTime{}
	k := &s.held.stock
	k.clock, k.leases.ackWait = f.clock(), int64(30*time.Second)
	k.ses = newSession(s.held, "", 10)
	b := &inbox{ses: k.ses, prefix: "_INBOX.x."}
	k.pulls.enter(b)
	k.pulls.sent(request{1, 1, 60_000})
	k.arrived(b, &nats.Msg{Subject: "s.a", Reply: "$JS.ACK.S.c.1.1.1.1.0"}, delivery{stream: 1, consumer: 1, delivered: 1})
	ms := make([]broker.Message, 1)
	if n := k.handOut(ms); n != 1 {
		t.Fatalf("%d messages were handed out", n)
	}
	f.wall += time.Hour
	if err := s.Nack(ms[0].Claim, []broker.Back{{Token: ms[0].Token}}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("Nack after an hour's sleep: %v, want ErrLost", err)
	}
	if n := s.outbox.pending(); n != 0 {
		t.Errorf("%d naks are to be sent", n)
	}
}

// Of two who look at the clock at once, the machine sleeps in the midst of one's look: the sleep counts once.
func TestSleepBetweenTwoLooks(t *testing.T) {
	f := &fakeTime{wall: 1000 * time.Hour}
	k := f.clock()
	plain := k.read
	k.read = func() (int64, int64) {
		mono, wall := plain()
		k.read = plain
		f.wall += time.Hour // now it sleeps, and another one looks
		k.now()
		return mono, wall
	}
	k.now()
	if n := time.Duration(k.now()); n != time.Hour {
		t.Errorf("%v have passed, want an hour", n)
	}
}
