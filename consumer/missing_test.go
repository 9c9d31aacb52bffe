package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// An expectant source has nothing to read until then.
type expectant struct {
	*membroker.Source
	has atomic.Bool
}

func (s *expectant) Missing() error {
	if s.has.Load() {
		return nil
	}
	return errors.New("topic t does not exist")
}

// TestMissingInAllSources: with several sources of which none has anything to read a consumer is not ready, and begins when one
// has. Who gives up is told what it waited for. One source alone waits in its Open, or does not want to.
func TestMissingInAllSources(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		source := func() *expectant { return &expectant{Source: b.Source(membroker.SourceConfig{Topics: []string{"in"}})} }
		handler := func(context.Context, *consumer.Message) error { return nil }
		several := func(first, second broker.Source, timeout time.Duration) *running {
			return start(t, b, consumer.Config{Sources: []consumer.Input{{Source: first}, {Source: second}}, Handler: handler,
				OpenTimeout: timeout})
		}
		second := source()
		r := several(source(), second, 0)
		time.Sleep(time.Hour)
		if r.Ready() || r.Stats().State != consumer.Opening {
			t.Errorf("it is %v, though there is nothing to read", r.Stats().State)
		}
		if told := eventsOf[consumer.SourceEvent](r.journal); !slices.ContainsFunc(told, func(e consumer.SourceEvent) bool {
			return e.Kind == broker.Warning && strings.Contains(e.Err.Error(), "none of the 2 sources has anything to read: topic t")
		}) {
			t.Errorf("told %v", told)
		}
		second.has.Store(true)
		time.Sleep(time.Second)
		if !r.Ready() {
			t.Error("it is not ready, though a source has something")
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}

		r = several(source(), source(), 5*time.Second)
		<-r.done
		if !errors.Is(r.err, context.DeadlineExceeded) || !strings.Contains(r.err.Error(), "topic t does not exist") {
			t.Errorf("given up: %v", r.err)
		}
		r = several(source(), source(), 0)
		time.Sleep(time.Second)
		if err := r.end(); err != nil {
			t.Errorf("stopped: %v", err)
		}
		for name, r := range map[string]*running{
			"one alone":      start(t, b, consumer.Config{Source: source(), Handler: handler}),
			"one of no such": several(source(), b.Source(membroker.SourceConfig{Topics: []string{"in"}}), 0),
		} {
			if time.Sleep(time.Second); !r.Ready() {
				t.Errorf("%s: it is not ready", name)
			}
			if err := r.end(); err != nil {
				t.Error(err)
			}
		}
	})
}
