package natsbroker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// TestMissingStream: a stream that is not there at the start is waited for, and told of once; or it is an error, where that is
// wanted. Both name it, and what makes it.
func TestMissingStream(t *testing.T) {
	ts := startServer(t)
	cfg := config(ts.url())
	cfg.Missing = "stop"
	s, err := natsbroker.NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20}, Observe: func(broker.Event) {}})
	closeSource(t, s)
	if !errors.Is(err, jetstream.ErrStreamNotFound) || !strings.Contains(err.Error(), "stream "+cfg.Stream) ||
		!strings.Contains(err.Error(), "create_stream") {
		t.Errorf("stop: %v", err)
	}
	cfg.Missing = "wait"
	if s, err = natsbroker.NewSource(cfg); err != nil {
		t.Fatal(err)
	}
	defer closeSource(t, s)
	told, opened := make(chan broker.Event, 100), make(chan error, 1)
	go func() {
		_, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20},
			Observe: func(e broker.Event) { told <- e }})
		opened <- err
	}()
	if e := <-told; e.Kind != broker.Warning || !strings.Contains(e.Err.Error(), "there is no stream "+cfg.Stream) ||
		!strings.Contains(e.Err.Error(), "waiting for it") {
		t.Errorf("told %v: %v", e.Kind, e.Err)
	}
	ts.admin().stream()
	if err := <-opened; err != nil {
		t.Errorf("Open, when the stream is there: %v", err)
	}
	for len(told) > 0 {
		if e := <-told; e.Kind == broker.Warning {
			t.Errorf("told again: %v", e.Err)
		}
	}
}

// TestMissingStreamOfAServerThatGoes: who waits for a stream, and has lost contact meanwhile, says when the server answers again,
// also where the stream is still missing: what it waits for then is the stream.
func TestMissingStreamOfAServerThatGoes(t *testing.T) {
	t.Parallel()
	ts := startServer(t)
	s, ev := must(natsbroker.NewSource(config(ts.url()))), &events{}
	t.Cleanup(func() { closeSource(t, s) })
	opened := make(chan error, 1)
	go func() {
		_, err := s.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: ev.observe})
		opened <- err
	}()
	eventually(t, "it waits for the stream", func() bool { return len(ev.of(broker.Warning)) > 0 })
	if ups := len(ev.of(broker.Up)); ups > 0 {
		t.Errorf("Up is told %d times before there is a stream", ups)
	}
	ts.down()
	eventually(t, "Down is told", func() bool { return len(ev.of(broker.Down)) > 0 })
	ts.up()
	eventually(t, "Up is told", func() bool { return len(ev.of(broker.Up)) > 0 })
	ts.admin().stream()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
}
