package natsbroker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

// A nak that Close sends may reach the server before the end of our last pull does: the server then sends the message to this very
// pull. It goes back once more, or nobody gets it until its ack wait is over.
func TestGivenBackToOurselves(t *testing.T) {
	s, err := NewSource(Config{Connection: Connection{URLs: []string{"nats://127.0.0.1:1"}}, Stream: "S", Consumer: "c", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	s.ackWaitNanos.Store(int64(time.Hour))
	s.credit.budget = broker.Budget{Messages: 4, Bytes: 1 << 20}
	s.ses = newSession(s, "", 4)
	b := &inbox{src: s, ses: s.ses, prefix: "_INBOX.x."}
	const first, again = "$JS.ACK.S.c.1.7.1.1700000000000000000.0", "$JS.ACK.S.c.2.7.2.1700000000000000000.0"
	b.arrived(&nats.Msg{Subject: "s.a", Reply: first})
	var got [1]broker.Message
	if n, err := s.Receive(got[:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.mu.Lock()
	s.stopped, s.closing, s.ses.ended = true, true, true
	s.mu.Unlock()
	s.giveBackAll(s.ses)
	b.arrived(&nats.Msg{Subject: "s.a", Reply: again})
	var naks []string
	for _, k := range s.outbox.naks {
		naks = append(naks, k.reply)
	}
	if len(naks) != 2 || naks[0] != first || naks[1] != again {
		t.Fatalf("given back: %q, want both deliveries", naks)
	}
	if err := s.Ack(got[0].Claim, []uint64{got[0].Token}); err == nil {
		t.Error("an ack after the message was given back says nothing")
	}
}
