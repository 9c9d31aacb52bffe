package program

import (
	"testing"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// A durable is one of its stream: what publish hands on of a mirror is no repeat of what another consumer, whose durable has the
// same name, hands on of its origin.
func TestGroupsOfStreams(t *testing.T) {
	t.Parallel()
	of := func(stream string) string {
		s, err := natsbroker.NewSource(natsbroker.Config{Stream: stream, Consumer: "workers"})
		if err != nil {
			t.Fatal(err)
		}
		return groupsOf([]consumer.Input{{Source: s}})
	}
	if a, b := of("ORDERS"), of("MIRROR"); a == b {
		t.Errorf("both are %q", a)
	}
}
