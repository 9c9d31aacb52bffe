package natsbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// A Close whose time is over before the server has received what is given back is no success, though all was written.
func TestCloseSaysWhatDidNotArrive(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	a.publish(1, 1)
	p := startProxy(t, ts.opts.Port)
	s := must(natsbroker.NewSource(config(p.url())))
	o := broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(broker.Event) {}}
	if _, err := s.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	receive(t, s, 1)
	p.cut(toServer)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close, while the server hears nothing: %v", err)
	}
}

// The same where the connection is lost before the server has said that it has received what was given back, and where there is
// another one by then: over that nobody hears of it.
func TestCloseOverALostConnection(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*proxy){"there is none": (*proxy).shut, "there is another": (*proxy).drop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			a.publish(1, 1)
			p := startProxy(t, ts.opts.Port)
			cfg := config(p.url())
			cfg.AckWait = time.Minute // the server keeps from others what it was not given back
			s := must(natsbroker.NewSource(cfg))
			if _, err := s.Open(t.Context(), someOptions()); err != nil {
				t.Fatal(err)
			}
			receive(t, s, 1)
			p.lose()
			closed := make(chan error, 1)
			go func() { closed <- s.Close(context.Background()) }()
			eventually(t, "it is given back", func() bool { return p.hasLost("-NAK") })
			end(p)
			if err := <-closed; err == nil {
				t.Error("Close says nothing of what was given back, and was lost")
			}
			if n := a.info().NumAckPending; n != 1 {
				t.Errorf("%d messages are unsettled, want the one that was lost on its way back", n)
			}
		})
	}
}
