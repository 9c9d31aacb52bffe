package natsbroker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// TestMadeDurableIsTold: where the durable was not there, as with a slip in its name, it is said that it was made, and where it
// begins; one that was there goes on without a word.
func TestMadeDurableIsTold(t *testing.T) {
	ts, a := serveStream(t)
	a.publish(1, 3)
	for _, want := range []string{"consumer c of stream S was not there and was made: begins at the first message", ""} {
		s := open(t, config(ts.url()))
		ack(t, s, receive(t, s, 1)...)
		closeSource(t, s)
		var said []string
		for _, e := range s.events.of(broker.Notice) {
			said = append(said, e.Err.Error())
		}
		if want == "" && len(said) > 0 || want != "" && (len(said) != 1 || !strings.Contains(said[0], want)) {
			t.Errorf("it said %q, want %q", said, want)
		}
	}
}

// TestBindNames: with Bind a durable that is not there is named, and none is made.
func TestBindNames(t *testing.T) {
	ts := startServer(t)
	ts.admin().stream()
	cfg := config(ts.url())
	cfg.Bind = true
	_, err := tryOpen(t, cfg)
	if err == nil || !strings.Contains(err.Error(), "there is no consumer c of stream S, and Bind is set") {
		t.Errorf("it said %v", err)
	}
	if _, err := ts.admin().js.Consumer(context.Background(), "S", "c"); err == nil {
		t.Error("it was made")
	}
}
