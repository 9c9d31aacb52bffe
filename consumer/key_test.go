package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// Which message holds a key up is told: the key of what is in a handler, and of what waits for its next attempt; the beginning of
// a long one, any bytes, and none told apart from an empty one.
func TestKeysOfWhatIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		long := strings.Repeat("k", 300)
		for _, key := range [][]byte{[]byte("fails"), []byte(long), []byte("\x00\xff"), {}, nil} {
			if err := b.Produce(broker.Outgoing{Topic: "in", Key: key}); err != nil {
				t.Fatal(err)
			}
		}
		open := make(chan struct{})
		r := start(t, b, consumer.Config{
			Order: consumer.OrderKey, Pool: consumer.Pool{Min: 5, Max: 5},
			Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour}},
			Handler: func(_ context.Context, m *consumer.Message) error {
				if string(m.Key) == "fails" {
					return errors.New("no tea")
				}
				<-open
				return nil
			}})
		time.Sleep(time.Second)
		parked, calls := r.Parked(10), r.Calls(10)
		if len(parked) != 1 || parked[0].Key != "fails" || parked[0].KeyBytes != 5 {
			t.Errorf("parked: %+v", parked)
		}
		want := map[int64]consumer.Call{
			1: {Key: long[:256], KeyBytes: 300}, 2: {Key: "\x00\xff", KeyBytes: 2}, 3: {}, 4: {KeyBytes: -1},
		}
		if len(calls) != len(want) {
			t.Errorf("calls: %+v", calls)
		}
		for _, c := range calls {
			if w := want[c.Offset]; c.Key != w.Key || c.KeyBytes != w.KeyBytes {
				t.Errorf("offset %d: %q of %d bytes, want %q of %d", c.Offset, c.Key, c.KeyBytes, w.Key, w.KeyBytes)
			}
		}
		close(open)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
