package handlers_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// outcome is what the engine first made of a message.
type outcome struct {
	acked   bool
	skipped string
	failed  *consumer.Failed
}

// permanent says whether the message was dead-lettered at once.
func (o outcome) permanent() bool { return o.failed != nil && o.failed.Class == "permanent" }

// undecodable says whether the message was dead-lettered at once, as one that cannot be read.
func (o outcome) undecodable() bool {
	return o.failed != nil && o.failed.Class == "decode" && o.failed.Verdict == consumer.VerdictDeadLetter
}

// retry is the wait before the next attempt, when there is one.
func (o outcome) retry() (time.Duration, bool) {
	if o.failed == nil || o.failed.Verdict != consumer.VerdictRetry {
		return 0, false
	}
	return o.failed.Delay, true
}

// backoff is the wait without RetryAfter in handled: an hour, so that the two cannot be mixed up.
const backoff = time.Hour

// handled runs a handler on one message in a real consumer and returns the first outcome.
func handled(t *testing.T, h consumer.Handler, m broker.Outgoing) outcome {
	t.Helper()
	b := membroker.New(membroker.Config{Topics: map[string]int{m.Topic: 1, "dead": 1}})
	if err := b.Produce(m); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	got := make(chan outcome, 1)
	first := func(o outcome) { once.Do(func() { got <- o }) }
	letters := b.Publisher()
	c, err := consumer.New(consumer.Config{
		Source:     b.Source(membroker.SourceConfig{Topics: []string{m.Topic}}),
		Handler:    h,
		Retry:      consumer.Retry{Backoff: consumer.Backoff{Initial: backoff, Max: backoff, Jitter: -1}},
		DeadLetter: &consumer.DeadLetter{Publisher: letters, Topic: "dead"},
		Observers: []consumer.Observer{func(e consumer.Event) {
			switch e := e.(type) {
			case consumer.Handled:
				first(outcome{acked: true})
			case consumer.Skipped:
				first(outcome{skipped: e.Reason})
			case consumer.Failed:
				first(outcome{failed: &e})
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := letters.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	select {
	case o := <-got:
		return o
	case <-time.After(patience):
		t.Fatal("the message was not handled")
		return outcome{}
	}
}

// message is one that no broker has handed out, for calls of a handler without an engine.
func message(topic string, value string) *consumer.Message {
	return &consumer.Message{Topic: topic, Partition: 3, Offset: 42, Value: []byte(value), Attempt: 1, Nanos: 1700000000_000000001}
}
