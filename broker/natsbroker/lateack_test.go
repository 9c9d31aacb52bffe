package natsbroker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A handler of the process that was pinned before may return when its message runs here again. Its ack settles the message for
// the server, which counts it no more, and here it is still in hand: it does not stand for what is missing.
func TestLateAckOfWhatRunsHere(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	p := startProxy(t, ts.opts.Port)
	cfg := pinConfig(p.url())
	cfg.RevokeWait = 50 * time.Millisecond
	first := open(t, cfg, inOrder)
	a.publish(1, 2)
	late := receive(t, first, 2)[1] // behind one that is out, too
	p.shut()
	eventually(t, "its turn is over", func() bool { return len(first.events.of(broker.Ended)) == 1 })
	cfg.URLs = []string{ts.url()}
	second := open(t, cfg, inOrder)
	again := receive(t, second, 2)
	a.publish(3, 4)
	failed := receive(t, second, 1)[0]
	eventually(t, "the last one is buffered", func() bool { return a.info().NumAckPending == 4 })
	p.heal()
	if err := first.Ack(late.Claim, []uint64{late.Token}); !errors.Is(err, broker.ErrLost) {
		t.Fatalf("the late ack says %v", err)
	}
	eventually(t, "the server has taken it", func() bool { return a.info().NumAckPending == 3 })
	if err := second.Nack(failed.Claim, []broker.Back{{Token: failed.Token, Delay: time.Second, Runs: 1}}); err != nil {
		t.Fatal(err)
	}
	next := receive(t, second, 2)
	if next[0].Offset != 3 || next[1].Offset != 4 {
		t.Errorf("after 3 was given back, %d and %d came", next[0].Offset, next[1].Offset)
	}
	ack(t, second, again...)
	ack(t, second, next...)
	a.settled()
}
