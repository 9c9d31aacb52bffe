package natsbroker_test

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Who has lost its turn while a handler runs on, and pauses, may be pinned once more, by a request that was with the server
// still. It gives that turn back: its handler is under a claim that is over, and the others do not wait for it.
func TestPausedAfterItsTurnLetsOthersGoOn(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	cfg := pinConfig(ts.url())
	cfg.RevokeWait = 50 * time.Millisecond
	first := open(t, cfg, inOrder)
	a.publish(1, 1)
	late := receive(t, first, 1)[0]
	a.unpin()
	eventually(t, "its turn is over, and it stands by", func() bool {
		return len(first.events.of(broker.Ended)) == 1 && a.info().NumWaiting > 0
	})
	if err := first.Pause(); err != nil {
		t.Fatal(err)
	}
	second := open(t, cfg, inOrder)
	a.publish(2, 5)
	ack(t, second, receive(t, second, 5)...)
	_ = first.Ack(late.Claim, []uint64{late.Token}) // its claim is over
	a.settled()
}
