package handlers_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

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
