package natsbroker_test

import (
	"errors"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// TestDestinations: a publisher knows whether a stream takes a subject, makes one that does, and publishes to it; a second time
// is no error.
func TestDestinations(t *testing.T) {
	ts, _ := serveStream(t)
	p, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: natsbroker.Connection{URLs: []string{ts.url()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Find(t.Context(), "dead.orders"); !errors.Is(err, broker.ErrNoTopic) {
		t.Errorf("a subject that none takes: %v", err)
	}
	for range 2 {
		if err := p.Create(t.Context(), "dead.orders"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Find(t.Context(), "dead.orders"); err != nil {
		t.Errorf("one that was made: %v", err)
	}
	if err := p.Publish(t.Context(), []broker.Outgoing{{Topic: "dead.orders", Value: []byte("v")}}); err != nil {
		t.Error(err)
	}
	if err := p.Create(t.Context(), "$JS.API.X"); !errors.Is(err, broker.ErrReserved) {
		t.Errorf("the server's own: %v", err)
	}
	_ = p.Close(t.Context())
	if err := p.Find(t.Context(), "dead.orders"); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
