package membroker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	engine "github.com/longshoremq/longshore/consumer"
)

// The loop that anybody would write waits for the messages, although it begins before the source has opened.
func TestUnsettledBeforeOpen(t *testing.T) {
	for name, c := range map[string]membroker.Config{"partitioned": {Partitions: 3}, "leased": {Leased: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(c)
				for range 10 {
					if err := b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("tea")}); err != nil {
						t.Fatal(err)
					}
				}
				if n := b.Unsettled("group"); n != -1 {
					t.Errorf("before there is a source %d are unsettled, want -1: nobody knows the group", n)
				}
				handled := 0
				consume, err := engine.New(engine.Config{
					Source:  b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
					Pool:    engine.Pool{Min: 1, Max: 1},
					Handler: func(context.Context, *engine.Message) error { handled++; return nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				if n := b.Unsettled("group"); n != 10 {
					t.Errorf("before Open %d are unsettled, want 10", n)
				}
				ctx, stop := context.WithCancel(t.Context())
				over := make(chan error, 1)
				go func() { over <- consume.Run(ctx) }()
				for b.Unsettled("group") > 0 {
					time.Sleep(time.Second)
				}
				stop()
				if err := <-over; err != nil {
					t.Error(err)
				}
				if handled != 10 || b.Unsettled("group") != 0 {
					t.Errorf("%d were handled and %d are unsettled, want 10 and 0", handled, b.Unsettled("group"))
				}
			})
		})
	}
}

// A source whose configuration is mistaken makes no group.
func TestUnsettledOfMistakenSource(t *testing.T) {
	b := membroker.New(membroker.Config{})
	b.Source(membroker.SourceConfig{Topics: []string{"orders"}, Prefetch: -1})
	b.Source(membroker.SourceConfig{Group: "no topics"})
	for _, group := range []string{"group", "no topics"} {
		if n := b.Unsettled(group); n != -1 {
			t.Errorf("%s: %d are unsettled, want -1", group, n)
		}
	}
}
