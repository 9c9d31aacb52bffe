package natsbroker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// inboxOf returns a subject at which the source that sends the next pull takes an answer. Ask before the source opens.
func inboxOf(t testing.TB, a *admin) func() string {
	t.Helper()
	pulls, err := a.nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		m, err := pulls.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		return m.Reply
	}
}

// Whoever may write to an inbox says where its answer is to go. Only to what acks a message is anything published.
func TestRepliesThatAreNoAcks(t *testing.T) {
	ts, a := serveStream(t)
	inbox := inboxOf(t, a)
	s := open(t, config(ts.url()))
	to := inbox()
	replies := []string{"$JS.API.STREAM.DELETE.S", "$JS.API.STREAM.DELETE.S.1.1.1.1.1.0", "s.S.c.1.1.1.1.0", "_INBOX.S.c.1.1.1.1.0",
		"$JS.ACKS.S.c.1.1.1.1.0", "$KV.S.c.1.1.1.1.0"}
	heard := make(chan *nats.Msg, 100)
	for _, r := range replies[1:] { // to the first one the server itself listens
		if _, err := a.nc.ChanSubscribe(r, heard); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range replies {
		if err := a.nc.PublishRequest(to, r, []byte("forged")); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	a.publish(1, 3) // what comes after them is what it was
	for _, m := range receive(t, s, 3) {
		if string(m.Value) == "forged" {
			t.Errorf("a forged message came as %+v", m)
		}
		ack(t, s, m)
	}
	a.settled()
	s.Stop()
	closeSource(t, s)
	if err := a.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for len(heard) > 0 {
		m := <-heard
		t.Errorf("%q was published to %s", m.Data, m.Subject)
	}
}

// Nor does it fill the log, by answers that refuse what was asked for, or say nothing.
func TestRefusedPullsAreToldSeldom(t *testing.T) {
	t.Parallel()
	ts, a := serveStream(t)
	inbox := inboxOf(t, a)
	s := open(t, config(ts.url()))
	to := inbox()
	refusal := &nats.Msg{Subject: to, Header: nats.Header{"Status": {"409"}, "Description": {"Exceeded MaxRequestBatch of 3"}}}
	for range 50 {
		if err := errors.Join(a.nc.PublishMsg(refusal), a.nc.Publish(to, nil)); err != nil {
			t.Fatal(err)
		}
	}
	a.publish(1, 10) // and what is asked for comes
	ack(t, s, receive(t, s, 10)...)
	a.settled()
	eventually(t, "the refusal is told", func() bool { return len(s.events.of(broker.Warning)) > 0 }) // not by who hands out
	if w := s.events.of(broker.Warning); len(w) != 1 || !strings.Contains(w[0].Err.Error(), "Exceeded MaxRequestBatch of 3") {
		t.Errorf("%d warnings: %v, want one", len(w), w)
	}
}

// A server that ends each pull at once is not asked again as fast as it answers.
func TestPullsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]nats.Header{
		"expired": {"Status": {"408"}, "Description": {"Request Timeout"}, "Nats-Pending-Messages": {"50"},
			"Nats-Pending-Bytes": {"524288"}},
		"uncounted": {"Status": {"404"}, "Description": {"No Messages"}},
		"too large": {"Status": {"409"}, "Description": {"Message Size Exceeds MaxBytes"}},
		"completed": {"Status": {"409"}, "Description": {"Batch Completed"}},
		"reset":     {"Status": {"409"}, "Description": {"Leadership Change"}},
		"deleted":   {"Status": {"409"}, "Description": {"Consumer Deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts, a := serveStream(t)
			const bound = 100
			asked := make(chan string, 1<<20)
			sub, err := a.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(m *nats.Msg) {
				asked <- m.Reply
				_ = a.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h})
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.nc.Flush(); err != nil {
				t.Fatal(err)
			}
			s := open(t, config(ts.url()))
			time.Sleep(2 * time.Second) // what is asked meanwhile is bounded, however fast or slow the machine is
			if n := len(asked); n > bound {
				t.Errorf("it was asked %d times in 2 s", n)
			}
			if err := sub.Unsubscribe(); err != nil {
				t.Fatal(err)
			}
			a.publish(1, 3) // and it goes on
			ack(t, s, receive(t, s, 3)...)
			a.settled()
		})
	}
}
