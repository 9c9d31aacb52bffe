package natsbroker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestGatherBesideAcks: a process gathers what is missing while its handlers go on. Acks of its own that the server has not taken
// yet are nobody else's: what waits here is not given back for them, look after look, until it has been delivered so often that
// it seems to have failed for good.
func TestGatherBesideAcks(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := pinConfig(p.url())
	cfg.AckWait = 4 * time.Second // it looks each sixteenth of that
	const out, all = 200, 400
	s := open(t, cfg, func(o *broker.Options) {
		inOrder(o)
		o.Budget.Messages = all
	})
	a.publish(1, all)
	ms := receive(t, s, out)
	p.delay(50 * time.Millisecond) // so long its acks are on their way
	if err := s.Nack(ms[0].Claim, []broker.Back{{Token: ms[0].Token, Delay: 3 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	for some := range slices.Chunk(ms[1:], 10) {
		ack(t, s, some...)
		pass(t, 130*time.Millisecond, "the next handlers return")
	}
	rest := receive(t, s, all-out+1)
	for i, m := range rest {
		if want := int64(out + i); i > 0 && m.Offset != want {
			t.Fatalf("message %d came, want %d", m.Offset, want)
		}
		if m.Attempt > 3 {
			t.Fatalf("message %d comes as attempt %d, want 1, or a few at most", m.Offset, m.Attempt)
		}
	}
	ack(t, s, rest...)
	a.settled()
}
