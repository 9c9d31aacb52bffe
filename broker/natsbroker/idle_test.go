package natsbroker_test

import (
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A source that pulls nothing any more, since it is paused, or stopped, or has failed for good, still has acks to bring to the
// server: those that were lost with their connection, and those that come after it.
func TestAcksOfWhoPullsNothing(t *testing.T) {
	for name, idle := range map[string]func(t *testing.T, a *admin, s *opened){
		"paused": func(t *testing.T, _ *admin, s *opened) {
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
		},
		"stopped": func(_ *testing.T, _ *admin, s *opened) { s.Stop() },
		"failed": func(t *testing.T, a *admin, s *opened) {
			cc := a.info().Config
			cc.HeadersOnly = true
			if _, err := a.js.UpdateConsumer(t.Context(), "S", cc); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Receive(make([]broker.Message, 1)); err == nil {
				t.Fatalf("%d messages", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			a.publish(1, 2)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.AckWait = time.Minute
			s := open(t, cfg)
			ms := receive(t, s, 2)
			idle(t, a, s)
			ackLate(t, p, s, ms[0])
			p.drop()
			p.heal()
			eventually(t, "what was lost with the connection is acked", func() bool { return a.info().NumAckPending == 1 })
			ack(t, s, ms[1])
			a.settled()
		})
	}
}
