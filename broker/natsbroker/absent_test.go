package natsbroker_test

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A server whose JetStream has ended still answers: connections stay, and each pull is told that nobody is there. Who looks at
// the source is told, too, though nothing is to be pulled or settled.
func TestJetStreamEndsAlone(t *testing.T) {
	for name, budget := range map[string]int{"with a pull": 100, "with a full budget": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			a.publish(1, 3)
			s := open(t, config(ts.url()), func(o *broker.Options) { o.Budget.Messages = budget })
			ms := receive(t, s, 3)
			eventually(t, "it is up", func() bool { return len(s.events.of(broker.Up)) == 1 })
			if err := ts.srv.DisableJetStream(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is down", func() bool { return len(s.events.of(broker.Down)) > 0 })
			pass(t, 2*time.Second, "it stayed so")
			if n := len(s.events.of(broker.Up)); n != 1 {
				t.Errorf("it was told %d times that it is up, while nothing was", n-1)
			}
			ts.down()
			ts.up()
			a.again()
			eventually(t, "it is up again", func() bool { return len(s.events.of(broker.Up)) == 2 })
			ack(t, s, ms...)
			a.settled()
		})
	}
}
