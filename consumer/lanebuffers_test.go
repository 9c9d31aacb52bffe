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

// A packed source hands out what it has at once in one piece of memory, as a broker's answer is, and tells of each.
type packed struct {
	*membroker.Source
	answers *kept[byte]
}

func (s packed) Receive(dst []broker.Message) (int, error) {
	n, err := s.Source.Receive(dst)
	answer := make([]byte, 0, 64<<10)
	for i := range n {
		at := len(answer)
		answer = append(answer, dst[i].Value...)
		dst[i].Value = answer[at:]
	}
	s.answers.add(&answer[:1][0])
	return n, err
}

// What waits in a lane behind a message that takes long keeps no answer of the broker in memory: there may be a thousand others
// in each, which were handled and are in no budget any more.
func TestWaitingInLanesKeepsNoAnswers(t *testing.T) {
	const rounds = 200
	var end chan struct{}
	for name, c := range map[string]struct {
		bad     func() error
		letters bool
	}{
		"runs":     {bad: func() error { <-end; return nil }},
		"retried":  {bad: func() error { return errors.New("not yet") }},
		"deferred": {bad: func() error { return consumer.Defer(time.Hour, nil) }},
		"letter":   {bad: func() error { return consumer.Permanent(errors.New("never")) }, letters: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end = make(chan struct{})
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "dead": 1}})
				var answers kept[byte]
				cfg := consumer.Config{
					Source: packed{b.Source(membroker.SourceConfig{Topics: []string{"in"}}), &answers}, Order: consumer.OrderKey,
					Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour}},
					Handler: func(_ context.Context, m *consumer.Message) error {
						if string(m.Key) == "bad" {
							return c.bad()
						}
						return nil
					}}
				if c.letters {
					cfg.DeadLetter = &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"}
					b.Fail(membroker.OpPublish, 1<<30, errors.New("down"))
				}
				r, stop := quiet(t, cfg)
				for range rounds {
					some := make([]broker.Outgoing, 128)
					for i := range some {
						some[i] = broker.Outgoing{Topic: "in", Key: []byte{byte(i)}, Value: make([]byte, 100)}
					}
					some[0].Key = []byte("bad")
					if err := b.Produce(some...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if s := r.Stats(); s.Waiting != rounds-1 {
					t.Errorf("%d messages wait, want %d", s.Waiting, rounds-1)
				}
				// Those of the works that were allocated together last are no more than some.
				if all, kept := answers.count(); all < rounds || kept > rounds/5 {
					t.Errorf("%d of %d answers are in memory", kept, all)
				}
				close(end)
				stop()
			})
		})
	}
}
