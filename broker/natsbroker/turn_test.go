package natsbroker

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// A request of a process that stood by may be answered by the consumer that was made anew, at an inbox that was left by then. It
// is still listened to, and what comes is our turn if the new consumer says so. A server does that at its own time, so it is
// played.
func TestPinnedAtAnInboxThatWasLeft(t *testing.T) {
	for name, c := range map[string]struct {
		pinned string
		ours   bool
	}{"by the new consumer": {"x", true}, "by the one before": {"another", false}} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSource(Config{Stream: "S", Consumer: "c"})
			if err != nil {
				t.Fatal(err)
			}
			s.held.open(broker.Options{Ordered: true, Budget: broker.Budget{Messages: 10, Bytes: 100_000}})
			watched, pins := watchSide{s.held}, pinSide{s.held}
			d := durable{consumer: &jetstream.ConsumerInfo{Config: Config{}.Durable(true)}}
			begin := func() *session {
				ses := newSession(s.held, "", 10)
				ses.pin.group = pinGroup
				watched.begin(ses, d)
				return ses
			}
			before := begin()
			b := &inbox{ses: before, prefix: "_INBOX.x."}
			s.held.stock.pulls.enter(b)
			s.held.stock.pulls.sent(request{id: 1, batch: 1})
			if old, _ := watched.fence(before, connEpoch{}, nil); old != nil {
				t.Fatal("it listens no more while its request is with the server")
			}
			ses := begin()
			for range 2 { // the second time it comes when all is known
				s.puller.arrived(b, &nats.Msg{Subject: "s.a", Header: nats.Header{pinHeader: {"x"}},
					Reply: "$JS.ACK.S.c.1.5.1.1700000000000000000.0"})
				if n := len(s.outbox.settles.naks); n > 0 && ses.pin.id == "" {
					t.Fatal("it is given back before it is known whose it is")
				}
				pins.learned(ses, &jetstream.ConsumerInfo{PriorityGroups: []jetstream.PriorityGroupState{{PinnedClientID: c.pinned}}})
			}
			if ours := ses.pin.id == "x"; ours != c.ours {
				t.Errorf("it is our turn: %v", ours)
			}
			if n := len(s.outbox.settles.naks); (n == 2) != c.ours || (n == 0) == c.ours {
				t.Errorf("%d were given back", n)
			}
			if !s.held.stock.pulls.lingered(0).any() {
				t.Error("it listens on though its request was answered")
			}
		})
	}
}

// What the process before settled between its redelivery here and the first count of our turn is not taken for what that process
// still has out: message 2 comes here, and its ack; message 1 is out.
func TestAckBeforeTheFirstCount(t *testing.T) {
	s, err := NewSource(Config{Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.held.open(broker.Options{Ordered: true, Budget: broker.Budget{Messages: 10, Bytes: 100_000}})
	ses := newSession(s.held, "", 10)
	ses.pin.group = pinGroup
	cc := Config{}.Durable(true)
	cc.AckWait = DefaultAckWait
	watchSide{s.held}.begin(ses, durable{consumer: &jetstream.ConsumerInfo{Config: cc}})
	b := &inbox{ses: ses, prefix: "_INBOX.x."}
	s.held.stock.pulls.enter(b)
	s.held.stock.pulls.sent(request{id: 1, batch: 1})
	s.puller.arrived(b, &nats.Msg{Subject: "s.a", Header: nats.Header{pinHeader: {"x"}},
		Reply: "$JS.ACK.S.c.2.2.7.1700000000000000000.0"})
	count := func(pending int) {
		pinSide{s.held}.gathered(ses, &jetstream.ConsumerInfo{NumAckPending: pending, Delivered: jetstream.SequenceInfo{Consumer: 7},
			PriorityGroups: []jetstream.PriorityGroupState{{PinnedClientID: "x"}}})
	}
	count(1)
	if len(s.outbox.settles.naks) != 1 || ses.slots.used != 0 {
		t.Errorf("%d were given back and %d are here: whether it is settled is not learned", len(s.outbox.settles.naks),
			ses.slots.used)
	}
	if count(1); !ses.pin.gathering {
		t.Error("it goes on while message 1 is out")
	}
	if count(0); ses.pin.gathering {
		t.Error("nothing is out, and it does not go on")
	}
}
