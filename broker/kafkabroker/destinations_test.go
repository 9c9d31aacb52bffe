package kafkabroker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A topic that cannot be written waits longer with each time, and is told of once. What was written to it since forgets that: the
// next time is a first one again, and others are not held up by it.
func TestBlocksEndWithAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDestinations(nil, false)
		block := func(topic string, first bool, wait time.Duration) {
			t.Helper()
			var e *outputError
			if err := d.block(topic, errors.New("no leader")); !errors.As(err, &e) || e.first != first {
				t.Errorf("%v, first: %v; want %v", err, e.first, first)
			}
			if time.Sleep(wait - time.Millisecond); d.blocked() == nil || !d.blocked()(topic) {
				t.Errorf("%s does not wait for %v", topic, wait)
			}
			if time.Sleep(time.Millisecond); d.blocked() != nil {
				t.Errorf("%s waits for longer than %v", topic, wait)
			}
		}
		block("a", true, firstBlock)
		block("a", false, 2*firstBlock)
		block("b", true, firstBlock)
		d.written([]*broker.Outgoing{{Topic: "c"}, {Topic: "a"}})
		block("a", true, firstBlock)
		block("b", false, 2*firstBlock)
	})
}
