package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// TestGoexitInCallbacks: a callback ends the goroutine of a worker that has decided about a message, as FailNow does in an
// observer of a test. Nothing can hold that back, and the message waits for the end of the consumer; so it is said why.
func TestGoexitInCallbacks(t *testing.T) {
	for name, want := range map[string]string{"an observer": "in an observer of failed: ", "an End": "in End: "} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			defer log.SetOutput(log.Writer())
			log.SetOutput(&said) // which locks
			synctest.Test(t, func(t *testing.T) { goexitIn(t, name == "an End") })
			if n := strings.Count(said.String(), "consumer: runtime.Goexit"); n != 1 || !strings.Contains(said.String(), want) {
				t.Errorf("said %d times, want once with %q:\n%s", n, want, said.String())
			}
		})
	}
}

func goexitIn(t *testing.T, end bool) {
	const all = 20
	b := membroker.New(membroker.Config{Topics: map[string]int{"in": 1}})
	var exits, done atomic.Int32
	exit := func(is bool) {
		if is && exits.Add(1) == 1 {
			runtime.Goexit()
		}
	}
	cfg := consumer.Config{
		Source:    b.Source(membroker.SourceConfig{Topics: []string{"in"}}),
		Observers: []consumer.Observer{func(e consumer.Event) { exit(!end && e.Name() == "failed") }},
		Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Offset == 3 && m.Attempt == 1 {
				return errors.New("once")
			}
			done.Add(1)
			return nil
		},
	}
	if end {
		cfg.Around = func(ctx context.Context, _ []*consumer.Message) (context.Context, consumer.End) {
			return ctx, func(of []consumer.Outcome) { exit(of[0].Err != nil) }
		}
	}
	for range all {
		if err := b.Produce(broker.Outgoing{Topic: "in", Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	_, stop := quiet(t, cfg)
	time.Sleep(time.Hour)
	stop()
	if n := done.Load(); n != all-1 {
		t.Errorf("%d were handled beside the one whose goroutine ended, want the other %d", n, all-1)
	}
	cfg.Source, cfg.Observers, cfg.Around = b.Source(membroker.SourceConfig{Topics: []string{"in"}}), nil, nil
	_, stop = quiet(t, cfg)
	defer stop()
	time.Sleep(time.Minute)
	if n := done.Load(); n < all {
		t.Errorf("%d were handled, want the one that went back, too", n)
	}
}
