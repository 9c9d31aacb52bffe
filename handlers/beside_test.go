package handlers_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// TestBesideGoexit: what runs beside a consumer and ends by runtime.Goexit is an error of Run, which waited for it for ever.
func TestBesideGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		c, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(context.Context, *consumer.Message) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		var s handlers.Setup
		s.Beside(func(context.Context, *consumer.Consumer) error { runtime.Goexit(); return nil })
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		result := make(chan error, 1)
		go func() { result <- s.Run(ctx, c) }()
		select {
		case err := <-result:
			if err == nil {
				t.Error("no error")
			}
		case <-time.After(time.Hour):
			stop()
			t.Fatal("Run does not return")
		}
	})
}

// TestBesidePanics: a panic of what runs beside a consumer ends no process: the consumer drains, and Run says it.
func TestBesidePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
		begun, panics := make(chan struct{}), make(chan struct{})
		handled := false
		c, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
			Handler: func(context.Context, *consumer.Message) error {
				close(begun)
				<-panics
				time.Sleep(time.Second)
				handled = true
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Produce(broker.Outgoing{Topic: "in"}); err != nil {
			t.Fatal(err)
		}
		var s handlers.Setup
		s.Beside(func(context.Context, *consumer.Consumer) error {
			<-begun
			close(panics)
			panic("no table")
		})
		var panicked *consumer.PanicError
		if err := s.Run(t.Context(), c); !errors.As(err, &panicked) || panicked.Value != "no table" || len(panicked.Stack) == 0 {
			t.Errorf("error %v, want the panic", err)
		}
		if !handled {
			t.Error("what ran was not waited for")
		}
	})
}
