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

// Whoever may wake a message that was deferred keeps it in memory no longer than it waits: a limit that nobody leaves would keep
// those of each claim that has ended meanwhile.
func TestWakeKeepsNoMessage(t *testing.T) {
	const messages = 100
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		var values kept[byte]
		line := make(chan func() bool, 10*messages)
		c, stop := quiet(t, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(_ context.Context, m *consumer.Message) error {
				values.add(&m.Value[0])
				return consumer.Defer(time.Minute, func(wake func() bool) { line <- wake })
			}})
		for range messages {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: make([]byte, 64<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(90 * time.Second)                      // each is in the handler twice, the second time as it was kept here
		if err := b.Trim("in", 0, messages); err != nil { // it would keep them for others
			t.Fatal(err)
		}
		if err := b.Bounce("group", "in", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s := c.Stats(); s.Deferred != 2*messages || s.InFlight != 0 || len(line) != 2*messages {
			t.Errorf("%d were deferred, %d can be woken, %d are here", s.Deferred, len(line), s.InFlight)
		}
		if all, kept := values.count(); kept > all/10 {
			t.Errorf("%d of %d are in memory", kept, all)
		}
		for len(line) > 0 {
			if wake := <-line; wake() {
				t.Error("one was woken that is not here")
			}
		}
		stop()
	})
}
