package natsbroker

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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

// A message comes before its delay is over, for its nak was lost with the connection. It waits for the rest of the delay, but not
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
			t.Parallel()
			u := playUnordered(t, c.maxDeliver)
			u.arrives(c.delivered-1, 1, 1)
			m := u.receive(1)[0]
			if err := u.s.Nack(m.Claim, []broker.Back{{Token: m.Token, Delay: time.Hour, Runs: 1}}); err != nil {
				t.Fatal(err)
			}
			u.s.outbox.settles.naks = nil // lost
			u.arrives(c.delivered, 1, 2)
			ms, naks := u.receive(1), u.s.outbox.settles.naks
			if (len(ms) == 1) != c.out || (len(naks) == 0) != c.out {
				t.Errorf("%d are handed out, and %d given back", len(ms), len(naks))
			}
			for _, m := range ms {
				if m.Attempt != int32(c.delivered) || m.Runs != 1 {
					t.Errorf("it is handed out as attempt %d after %d runs", m.Attempt, m.Runs)
				}
			}
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
