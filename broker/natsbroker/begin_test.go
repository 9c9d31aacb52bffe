package natsbroker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// TestPriorityTimeoutFollows: what is said of the priority timeout goes by the ack wait that holds, which is the durable's: what
// one warning says to set, no other finds wrong.
func TestPriorityTimeoutFollows(t *testing.T) {
	ts, a := serveStream(t)
	theirs := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 20 * time.Second, MaxDeliver: -1, MaxAckPending: 20_000}
	if _, err := a.js.CreateConsumer(context.Background(), "S", theirs); err != nil {
		t.Fatal(err)
	}
	cfg := config(ts.url())
	cfg.AckWait = 30 * time.Second
	warnings := func() string {
		s := open(t, cfg, inOrder)
		closeSource(t, s)
		var all []string
		for _, e := range s.events.of(broker.Warning) {
			all = append(all, e.Err.Error())
		}
		return strings.Join(all, "\n")
	}
	if all := warnings(); !strings.Contains(all, "priority_timeout to 25s") || !strings.Contains(all, "ack_wait is 20s there") {
		t.Errorf("without a group it said:\n%s", all)
	}
	theirs.PriorityPolicy, theirs.PriorityGroups, theirs.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"longshore"},
		25*time.Second
	if _, err := a.js.UpdateConsumer(context.Background(), "S", theirs); err != nil {
		t.Fatal(err)
	}
	if all := warnings(); strings.Contains(all, "priority_timeout") {
		t.Errorf("with what it asked for it said:\n%s", all)
	}
	theirs.PinnedTTL = 37500 * time.Millisecond
	if _, err := a.js.UpdateConsumer(context.Background(), "S", theirs); err != nil {
		t.Fatal(err)
	}
	if all := warnings(); !strings.Contains(all, "priority_timeout is 37.5s there: set it to 25s") {
		t.Errorf("with another one it said:\n%s", all)
	}
}
