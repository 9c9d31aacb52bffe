package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// nameless is a source that does not name its messages, as core NATS: no offset, no ID, and the time is when it came.
type nameless struct{ broker.Source }

func (s nameless) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	for i := range dst[:n] {
		dst[i].Partition, dst[i].Offset, dst[i].Name, dst[i].Nanos = -1, -1, "", time.Now().UnixNano()
	}
	return n, err
}

// Messages that came at one instant and have no names are no repeats of each other in the dead letters, nor is what was made of
// them.
func TestWithoutNamesNothingIsARepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(kinds["leased"])
		produce(t, b, 20)
		p := &drops{Publisher: b.Publisher(), has: map[string]bool{}}
		r := start(t, b, consumer.Config{
			Source: nameless{b.Source(membroker.SourceConfig{Topics: []string{"in"}})}, Output: p,
			DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: "dead"},
			Handler: func(ctx context.Context, m *consumer.Message) error {
				if len(m.Value) == 1 {
					return consumer.Permanent(errors.New("bad"))
				}
				return consumer.Emit(ctx, broker.Outgoing{Topic: "out", Value: m.Value})
			},
		})
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if dead, out := len(b.Messages("dead")), len(b.Messages("out")); dead != 10 || out != 10 {
			t.Errorf("%d dead letters and %d outputs, want 10 of each", dead, out)
		}
	})
}
