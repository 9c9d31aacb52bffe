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

// What was emitted is not in memory any more when it is stored, though a handler that takes long has a message that came together
// with its own.
func TestEmittedIsNotKept(t *testing.T) {
	const messages, slow = 640, 64
	for name, cfg := range map[string]membroker.Config{
		"atomic":     {Topics: map[string]int{"in": 1, "out": 1}, Atomic: true},
		"not atomic": {Topics: map[string]int{"in": 1, "out": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(cfg)
				var values kept[byte]
				end := make(chan struct{})
				c := consumer.Config{Handler: func(ctx context.Context, m *consumer.Message) error {
					if m.Offset%slow == 0 {
						<-end
						return nil
					}
					time.Sleep(time.Second)
					o := broker.Outgoing{Topic: "out", Value: make([]byte, 1<<10)}
					values.add(&o.Value[0])
					return consumer.Emit(ctx, o)
				}}
				if !cfg.Atomic {
					c.Output = b.Publisher()
				}
				r := start(t, b, c)
				produce(t, b, messages)
				time.Sleep(10 * time.Minute)
				if err := b.Trim("out", 0, messages); err != nil { // it would keep them for readers
					t.Fatal(err)
				}
				if s := r.Stats(); s.InFlight != messages/slow {
					t.Errorf("%d messages are in handlers, want %d", s.InFlight, messages/slow)
				}
				if all, kept := values.count(); all != messages-messages/slow || kept > all/10 {
					t.Errorf("%d of %d outputs are in memory", kept, all)
				}
				close(end)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
