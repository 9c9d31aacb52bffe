package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// What is given back at a revocation is not in memory any more, though all workers are in handlers that take long and nobody
// comes by the queue: with each revocation there would be as much as the budget allows.
func TestRevokedMessagesAreNotKept(t *testing.T) {
	levels := &consumer.Priority{Levels: []int{2, 1}, Of: func(m *consumer.Message) int { return int(m.Offset % 2) }}
	for name, cfg := range map[string]consumer.Config{
		"single":   {},
		"priority": {Priority: levels},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rounds, each = 50, 4
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}, Lease: time.Hour})
				end := make(chan struct{})
				cfg.Pool = consumer.Pool{Min: 1, Max: 1}
				values := &kept[byte]{}
				cfg.Source = watched{b.Source(membroker.SourceConfig{Topics: []string{"in"}, RevokeWait: time.Millisecond}), values}
				cfg.Handler = func(context.Context, *consumer.Message) error {
					<-end
					return nil
				}
				r := start(t, b, cfg)
				for no := range rounds {
					for i := range each {
						if err := b.Produce(broker.Outgoing{Topic: "in", Key: []byte{byte(i)}, Value: make([]byte, 64)}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Second)
					if err := b.Trim("in", 0, int64((no+1)*each)); err != nil { // it would keep them for others
						t.Fatal(err)
					}
					if err := b.Bounce("group", "in", 0); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if s := r.Stats(); s.GivenBack < rounds/2 {
					t.Errorf("%d went back: nothing was proved", s.GivenBack)
				}
				if all, kept := values.count(); kept > 2*each {
					t.Errorf("%d of %d messages are in memory, want those of the handler's chunk at most", kept, all)
				}
				close(end)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
