package membroker_test

import (
	"context"
	"errors"
	"slices"
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

// TestNacks: what was given back is told of, each time, and what was acked is not.
func TestNacks(t *testing.T) {
	for name, c := range map[string]struct {
		of   membroker.Config
		want []int64
	}{"leased": {membroker.Config{Leased: true}, []int64{0, 0}}, "partitioned": {membroker.Config{Partitions: 1}, nil}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(c.of)
				if err := b.Produce(broker.Outgoing{Topic: "orders"}, broker.Outgoing{Topic: "orders"}); err != nil {
					t.Fatal(err)
				}
				consume, err := engine.New(engine.Config{
					Source: b.Source(membroker.SourceConfig{Topics: []string{"orders"}}), Pool: engine.Pool{Min: 1, Max: 1},
					Handler: func(_ context.Context, m *engine.Message) error {
						if m.Runs < 2 && m.Offset == b.Messages("orders")[0].Offset {
							return errors.New("not yet")
						}
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				ctx, stop := context.WithCancel(t.Context())
				over := make(chan error, 1)
				go func() { over <- consume.Run(ctx) }()
				for b.Unsettled("group") != 0 {
					time.Sleep(time.Second)
				}
				stop()
				if err := <-over; err != nil {
					t.Error(err)
				}
				var got []int64
				first := b.Messages("orders")[0].Offset
				for _, n := range b.Nacks("group") {
					if got = append(got, n.Offset-first); n.At.Before(began) || n.At.After(time.Now()) {
						t.Errorf("a nack at %v, which is not while it ran", n.At)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("nacks of %v, want of %v", got, c.want)
				}
			})
		})
	}
	if ns := membroker.New(membroker.Config{}).Nacks("nobody"); ns != nil {
		t.Errorf("of a group that is not there: %v", ns)
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
