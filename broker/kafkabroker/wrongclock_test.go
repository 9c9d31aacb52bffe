package kafkabroker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

const wantsClock = "by the clock of this machine it is "

// TestWrongClock: a broker takes no message whose time is far from its own. That is of a clock and of no message, so nothing is
// refused for good: with a dead-letter topic elsewhere all messages would end there. What is said names the clock.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1}, "sticky")
	ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTimestamp, Count: -1})
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	err := p.Publish(t.Context(), []broker.Outgoing{{Topic: ts.topics[0], Value: []byte("v")}})
	if err == nil || errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), wantsClock) {
		t.Errorf("Publish: %v; want no refusal, and %q", err, wantsClock)
	}
}

// TestWrongClockTransactional: outputs wait until the clock is right.
func TestWrongClockTransactional(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "transactional")
	var wrong atomic.Bool
	wrong.Store(true)
	ts.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		if req.TransactionID == nil || !wrong.Load() {
			return nil
		}
		return refuse(req, kerr.InvalidTimestamp)
	})
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 10)}
	r.open(t)
	ts.put(t, ts.topics[0], 0, 1)
	m := <-r.out
	if err := s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token},
		Outs: []broker.Outgoing{{Topic: ts.outputs, Value: []byte("made")}}}}); err != nil {
		t.Fatal(err)
	}
	r.told(t, broker.Warning, wantsClock)
	wrong.Store(false)
	eventually(t, "it is stored", func() bool { return len(ts.stored(t, ts.outputs)) == 1 })
	eventually(t, "it is committed", func() bool { return ts.unsettled(t) == 0 })
	r.close()
}
