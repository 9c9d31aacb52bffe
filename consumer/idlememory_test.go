package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/rs/zerolog"
)

// Workers that have nothing to do keep nothing of what they had in hand, of none of the claims that they were at.
func TestIdleWorkersKeepNothing(t *testing.T) {
	const partitions, workers = 8, 32
	around := func(ctx context.Context, _ []*consumer.Message) (context.Context, consumer.End) {
		return ctx, func([]consumer.Outcome) {}
	}
	for name, c := range map[string]struct {
		around consumer.Around
		emits  bool
	}{
		"plain":  {},
		"emits":  {emits: true},
		"around": {around: around},
		"both":   {around, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"in": partitions, "out": 1}})
				var values kept[byte]
				cfg := consumer.Config{Pool: consumer.Pool{Min: workers, Max: workers}, Around: c.around,
					Handler: func(ctx context.Context, m *consumer.Message) error {
						values.add(&m.Value[0])
						time.Sleep(time.Second)
						if c.emits {
							return consumer.Emit(ctx, broker.Outgoing{Topic: "out"})
						}
						return nil
					}}
				if c.emits {
					cfg.Output = b.Publisher()
				}
				r := start(t, b, cfg)
				for i := range 4 * workers * partitions {
					if err := b.ProduceTo(i%partitions, broker.Outgoing{Topic: "in", Value: make([]byte, 64<<10)}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Minute)
				for p := range int32(partitions) {
					if err := b.Trim("in", p, 4*workers); err != nil { // it would keep them for others
						t.Fatal(err)
					}
				}
				// What the dispatcher received last is no more than some messages.
				if all, kept := values.count(); all != 4*workers*partitions || kept >= workers/2 {
					t.Errorf("%d handled, %d of them are in memory", all, kept)
				}
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// quiet runs a consumer whose events nobody keeps, until stop.
func quiet(t *testing.T, cfg consumer.Config) (c *consumer.Consumer, stop func()) {
	t.Helper()
	cfg.Logger = zerolog.Nop()
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return c, func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The values of a call's context stay with a message that waits for its next attempt, and nothing else of the call does.
func TestWaitingMessagesKeepNoWork(t *testing.T) {
	const messages = 64
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1, "out": 1}})
		var values kept[byte]
		c, stop := quiet(t, consumer.Config{
			Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}), Timeout: time.Second,
			Output: b.Publisher(), Pool: consumer.Pool{Min: 1, Max: 1},
			Retry:  consumer.Retry{Backoff: consumer.Backoff{Initial: time.Hour, Max: time.Hour}},
			Around: func(ctx context.Context, _ []*consumer.Message) (context.Context, consumer.End) { return ctx, nil },
			Handler: func(ctx context.Context, m *consumer.Message) error {
				values.add(&m.Value[0])
				<-ctx.Done()
				return ctx.Err()
			}})
		for range messages {
			if err := b.Produce(broker.Outgoing{Topic: "in", Value: make([]byte, 512<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		if err := b.Trim("in", 0, messages); err != nil { // it would keep them for others
			t.Fatal(err)
		}
		if s := c.Stats(); s.Parked != messages {
			t.Errorf("%d messages wait, want %d", s.Parked, messages)
		}
		if all, kept := values.count(); all != messages || kept >= messages/4 {
			t.Errorf("%d of %d are in memory as they came", kept, all)
		}
		stop()
	})
}
