//go:build unix

package natsd_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/integration/natsd"
)

func TestKilledServerComesBackWithItsData(t *testing.T) {
	s := natsd.Start(t)
	put(t, s, true)
	first := s.Pid()
	s.Kill()
	if nc, err := nats.Connect(s.URL()); err == nil {
		nc.Close()
		t.Fatal("a killed server takes connections")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if s.Pid() == first {
		t.Fatalf("still process %d", first)
	}
	if got := put(t, s, false); got != 2 {
		t.Fatalf("the second message has sequence %d, want 2: the first is gone", got)
	}
}

// put publishes one message and returns its sequence.
func put(t *testing.T, s *natsd.Server, create bool) uint64 {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if create {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
			t.Fatal(err)
		}
	}
	ack, err := js.Publish(t.Context(), "s.a", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}
