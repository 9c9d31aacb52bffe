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
