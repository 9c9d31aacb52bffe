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
	ts, a := serveStream(t)
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
	// What an account maps goes where no name of a stream tells.
	if err := ts.srv.GlobalAccount().AddMapping("mapped", "s.mapped"); err != nil {
		t.Fatal(err)
	}
	if err := p.Find(t.Context(), "mapped"); !errors.Is(err, broker.ErrNoTopic) {
		t.Errorf("a subject that is mapped: %v", err)
	}
	if err := p.Publish(t.Context(), []broker.Outgoing{{Topic: "mapped", Value: []byte("v")}}); err != nil {
		t.Error(err)
	}
	if err := p.Find(t.Context(), "mapped"); err != nil {
		t.Errorf("after a stream has confirmed: %v", err)
	}
	if err := a.js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	err = one(t, p, broker.Outgoing{Topic: "mapped"})
	if err == nil || errors.Is(err, broker.ErrRefused) {
		t.Errorf("while its stream is away: %v", err)
	}
	_ = p.Close(t.Context())
	if err := p.Find(t.Context(), "dead.orders"); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
