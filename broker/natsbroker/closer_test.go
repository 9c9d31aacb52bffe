package natsbroker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

const (
	firstDelivery = "$JS.ACK.S.c.1.7.1.1700000000000000000.0"
	nextDelivery  = "$JS.ACK.S.c.2.7.2.1700000000000000000.0"
)

// out returns a source without a connection, and a message that it has handed out.
func out(t *testing.T) (*Source, *inbox, broker.Message) {
	s, err := NewSource(Config{Connection: Connection{URLs: []string{"nats://127.0.0.1:1"}}, Stream: "S", Consumer: "c",
		Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	s.held.open(broker.Options{Budget: broker.Budget{Messages: 4, Bytes: 1 << 20}})
	s.held.stock.leases.ackWait = int64(time.Hour)
	b := &inbox{ses: newSession(s.held, "", 4), prefix: "_INBOX.x."}
	s.held.stock.ses = b.ses
	s.puller.arrived(b, &nats.Msg{Subject: "s.a", Reply: firstDelivery})
	var got [1]broker.Message
	if n, err := s.Receive(got[:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return s, b, got[0]
}

// fence is what Close does first.
func fence(s *Source) {
	s.Stop()
	s.held.fence()
}

func wantNaks(t *testing.T, s *Source, want ...string) {
	t.Helper()
	var naks []string
	for _, k := range s.outbox.settles.naks {
		naks = append(naks, k.reply)
	}
	if !slices.Equal(naks, want) {
		t.Errorf("given back: %q, want %q", naks, want)
	}
}

// A nak that Close sends may reach the server before the end of our last pull does: the server then sends the message to this
// very pull. It goes back once more, or nobody gets it until its ack wait is over.
func TestGivenBackToOurselves(t *testing.T) {
	s, b, m := out(t)
	fence(s)
	s.held.giveBackAll(s.held.stock.ses)
	s.puller.arrived(b, &nats.Msg{Subject: "s.a", Reply: nextDelivery})
	wantNaks(t, s, firstDelivery, nextDelivery)
	if err := s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrLost) {
		t.Errorf("Ack of what was given back: %v", err)
	}
	wantNaks(t, s, firstDelivery, nextDelivery)
}

// A settle may come between Close's fence and its giving back, which then does not find the message: it goes back by the settle.
func TestSettledBehindTheFence(t *testing.T) {
	for name, settle := range map[string]func(*Source, broker.Message) error{
		"ack":  func(s *Source, m broker.Message) error { return s.Ack(m.Claim, []uint64{m.Token}) },
		"nack": func(s *Source, m broker.Message) error { return s.Nack(m.Claim, []broker.Back{{Token: m.Token}}) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, m := out(t)
			fence(s)
			if err := settle(s, m); !errors.Is(err, broker.ErrLost) {
				t.Errorf("settled behind the fence: %v", err)
			}
			s.held.giveBackAll(s.held.stock.ses)
			wantNaks(t, s, firstDelivery)
		})
	}
}
