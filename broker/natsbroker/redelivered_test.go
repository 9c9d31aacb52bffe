package natsbroker

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// playUnordered is a source without an order, whose consumer delivers so often at most.
func playUnordered(t *testing.T, maxDeliver int) *playedTurn {
	t.Helper()
	s, begin := standingBy(t)
	s.held.stock.ordered = false
	ses := begin()
	ses.pin.group = ""
	s.held.stock.leases.ackWait, s.held.stock.maxDeliver = int64(DefaultAckWait), maxDeliver
	b := &inbox{ses: ses, prefix: "_INBOX.x."}
	s.held.stock.pulls.enter(b)
	s.held.stock.pulls.sent(request{id: 1, batch: 10})
	return &playedTurn{t, s, b}
}

// A message comes before its delay is over, for its nak was lost with the connection. It waits for the rest of the delay, here
// where this is its last delivery: what is given back then is dropped by the server, and nobody had it to the end.
func TestRedeliveredBeforeItsDelayIsOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		delivered, maxDeliver int
		out                   bool
	}{
		"not the last one": {2, 3, false},
		"the last one":     {3, 3, true},
		"max_deliver fell": {3, 2, true},
		"none is the last": {3, -1, false},
		"none is, by 0":    {3, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := playUnordered(t, 0)
				u.arrives(c.delivered-1, 1, 1)
				m := u.receive(1)[0]
				if err := u.s.Nack(m.Claim, []broker.Back{{Token: m.Token, Delay: time.Hour, Runs: 1}}); err != nil {
					t.Fatal(err)
				}
				u.s.outbox.settles.naks, u.s.held.stock.maxDeliver = nil, c.maxDeliver // lost
				u.arrives(c.delivered, 1, 2)
				u.arrives(1, 2, 3)
				if ms := u.receive(2); len(ms) != 1 || ms[0].Offset != 2 {
					t.Errorf("before the delay is over, %+v are handed out, want message 2", ms)
				}
				naks := u.s.outbox.settles.naks
				time.Sleep(time.Hour)
				synctest.Wait()
				if rang := len(u.s.bells.receive) > 0; rang != c.out {
					t.Errorf("who waits for messages was woken: %v", rang)
				}
				ms := u.receive(1)
				if (len(ms) == 1) != c.out || (len(naks) == 0) != c.out {
					t.Errorf("%d are handed out, and %d given back", len(ms), len(naks))
				}
				for _, m := range ms {
					if m.Attempt != int32(c.delivered) || m.Runs != 1 {
						t.Errorf("it is handed out as attempt %d after %d runs", m.Attempt, m.Runs)
					}
				}
			})
		})
	}
}

// What came without its payload goes back until the consumer was looked at, but not at its last delivery.
func TestBareAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		delivered, maxDeliver int
		out                   bool
	}{
		"not the last one": {1, 2, false},
		"the only one":     {1, 1, true},
		"the last one":     {2, 2, true},
		"none is the last": {2, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := playUnordered(t, c.maxDeliver)
			u.s.puller.arrived(u.b, &nats.Msg{Subject: "s.a", Header: nats.Header{nats.MsgSize: {"5"}},
				Reply: fmt.Sprintf("$JS.ACK.S.c.%d.1.1.1700000000000000000.0", c.delivered)})
			ms, naks := u.receive(1), u.s.outbox.settles.naks
			if (len(ms) == 1) != c.out || (len(naks) == 0) != c.out {
				t.Errorf("%d are handed out, and %d given back", len(ms), len(naks))
			}
		})
	}
}

// A message waits here for so long that it is delivered once more. That is the delivery that it is handed out as, for by it the
// server counts, and drops it after its last one.
func TestRedeliveredWhileItWaits(t *testing.T) {
	t.Parallel()
	u := playUnordered(t, 2)
	u.arrives(1, 1, 1)
	u.arrives(2, 1, 2)
	if ms := u.receive(2); len(ms) != 1 || ms[0].Attempt != 2 {
		t.Errorf("handed out are %+v, want one message, as attempt 2", ms)
	}
}

// What was delivered again to the same turn is not taken for what the process before had.
func TestRedeliveredInOurTurn(t *testing.T) {
	t.Parallel()
	u := playTurn(t)
	u.arrives(1, 1, 1)
	u.arrives(2, 1, 2)
	u.looks(1, 2)
	if n := len(u.s.outbox.settles.naks); n > 0 {
		t.Errorf("%d are given back", n)
	}
	if ms := u.receive(2); len(ms) != 1 || ms[0].Attempt != 2 {
		t.Errorf("handed out are %+v, want one message, as attempt 2", ms)
	}
}

// What waited at its last delivery for longer than its lease is begun all the same, and what is out then is begun, for no other
// process can have it.
func TestLapsedAtTheLastDelivery(t *testing.T) {
	for name, c := range map[string]struct {
		delivered int
		out       int
	}{"not the last one": {1, 0}, "the last one": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := playUnordered(t, 2)
				u.arrives(c.delivered, 1, 1)
				m := u.receive(1)[0]
				u.arrives(c.delivered, 2, 2)
				time.Sleep(2 * DefaultAckWait)
				if lapsed := u.s.Lapsed(m.Claim, m.Token); lapsed != (c.out == 0) {
					t.Errorf("what is out has lapsed: %v", lapsed)
				}
				if ms := u.receive(1); len(ms) != c.out {
					t.Errorf("%d are handed out, want %d", len(ms), c.out)
				}
			})
		})
	}
}

// A message is delivered for the last time, by the consumer that was made anew, while it is out under the earlier claim. It waits
// until that is settled.
func TestOutBeforeAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	u := playUnordered(t, 1)
	u.arrives(1, 1, 1)
	m := u.receive(1)[0]
	watchSide{u.s.held}.fence(u.b.ses, connEpoch{}, nil)
	ses := newSession(u.s.held, "", 10)
	watchSide{u.s.held}.begin(ses, durable{consumer: &jetstream.ConsumerInfo{Config: Config{}.Durable(false)}})
	u.s.held.stock.leases.ackWait, u.s.held.stock.maxDeliver = int64(DefaultAckWait), 1
	u.b = &inbox{ses: ses, prefix: "_INBOX.y."}
	u.s.held.stock.pulls.enter(u.b)
	u.s.held.stock.pulls.sent(request{id: 1, batch: 10})
	u.arrives(1, 1, 1)
	if ms := u.receive(1); len(ms) > 0 {
		t.Error("it is handed out while it is out")
	}
	if err := u.s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("the ack says %v", err)
	}
	if ms := u.receive(1); len(ms) != 1 {
		t.Error("it is not handed out, and comes no more")
	}
}

// Who begins to gather gives back what was delivered before, to learn whether it is settled, but not at its last delivery.
func TestGatheredAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	u := playTurn(t)
	u.s.held.stock.maxDeliver = 2
	u.arrives(2, 1, 1)
	u.arrives(1, 2, 2)
	u.looks(2, 2)
	if naks := u.s.outbox.settles.naks; len(naks) > 0 {
		t.Errorf("%d are given back", len(naks))
	}
	if ms := u.receive(2); len(ms) != 2 || ms[0].Offset != 1 {
		t.Errorf("handed out are %+v, want both, in order", ms)
	}
}

// The same of what others may have settled in our turn: it may run once more then.
func TestDoubtedAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	u := playTurn(t)
	u.s.held.stock.maxDeliver = 2
	u.arrives(2, 1, 1)
	u.arrives(1, 2, 2)
	u.arrives(1, 3, 3)
	u.looks(3, 3)
	u.misses(u.receive(1)...) // it is kept
	u.looks(2, 3)             // others have settled one of them
	for _, n := range u.s.outbox.settles.naks {
		if d, _ := parseReply(n.reply); d.stream == 1 {
			t.Error("message 1 is given back")
		}
	}
	u.looks(2, u.comeAgainWithout(3, 4)) // they have settled message 3
	ms := u.receive(3)
	if len(ms) != 2 || ms[0].Offset != 1 || ms[1].Offset != 2 {
		t.Errorf("handed out are %+v, want messages 1 and 2, in order", ms)
	}
}

// In an order, what is kept at its last delivery has its delay, and what stands behind it waits.
func TestKeptInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := playTurn(t)
		u.s.held.stock.maxDeliver = 2
		u.arrives(1, 1, 1)
		u.arrives(1, 2, 2)
		u.looks(2, 2)
		out := u.receive(1)
		u.arrives(2, 1, 3)
		if err := u.s.Nack(out[0].Claim, []broker.Back{{Token: out[0].Token, Delay: time.Second, Runs: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := u.s.Ack(out[0].Claim, []uint64{out[0].Token}); !errors.Is(err, broker.ErrSettled) {
			t.Errorf("an ack of what was given back says %v", err)
		}
		u.looks(2, 3)
		if ms := u.receive(2); len(ms) > 0 {
			t.Errorf("before the delay is over, %d are handed out", len(ms))
		}
		time.Sleep(time.Second)
		ms := u.receive(2)
		if len(ms) != 2 || ms[0].Offset != 1 || ms[0].Attempt != 2 || ms[0].Runs != 1 {
			t.Errorf("handed out are %+v, want both, in order", ms)
		}
		u.ack(ms...)
		if here, bytes := u.s.held.stock.pulls.here(); here != 0 || bytes != 0 || u.b.ses.out != 0 || u.b.ses.slots.used != 0 {
			t.Errorf("%d of %d bytes are counted as here", here, bytes)
		}
	})
}
