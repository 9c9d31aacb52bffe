package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

func handleAll(context.Context, *consumer.Message) error { return nil }

// A source that somebody else closes under a consumer ends it with an error: a program that exits, and says that all went well,
// is started again by nobody.
func TestSourceClosedUnderAConsumer(t *testing.T) {
	for what, end := range map[string]func(s *membroker.Source) error{
		"Close": func(s *membroker.Source) error { return s.Close(context.Background()) },
		"Stop":  func(s *membroker.Source) error { s.Stop(); return nil },
	} {
		t.Run(what, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *membroker.Broker) {
				source := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
				r := start(t, b, consumer.Config{Name: "orders", Source: source, Handler: handleAll})
				synctest.Wait()
				if err := end(source); err != nil {
					t.Fatal(err)
				}
				<-r.done
				err := r.end()
				if err == nil || !strings.HasPrefix(err.Error(), "consumer orders: the source was stopped or closed by somebody else") {
					t.Errorf("Run returned %v, want an error that says so", err)
				}
			})
		})
	}
}

// A consumer that is given the source of another one says so, and leaves it to that one.
func TestSourceOfAnotherConsumer(t *testing.T) {
	onEach(t, func(t *testing.T, b *membroker.Broker) {
		source := b.Source(membroker.SourceConfig{Topics: []string{"in"}})
		first := start(t, b, consumer.Config{Source: source, Handler: handleAll})
		synctest.Wait()
		second, err := consumer.New(consumer.Config{Name: "second", Source: source, Handler: handleAll})
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Run(t.Context()); !errors.Is(err, broker.ErrOpened) || !strings.Contains(err.Error(), "a source of its own") {
			t.Errorf("the second consumer's Run returned %v", err)
		}
		produce(t, b, 10)
		time.Sleep(time.Minute)
		wantUnsettled(t, b, 0)
		if err := first.end(); err != nil {
			t.Errorf("the first consumer's Run returned %v", err)
		}
		again, err := consumer.New(consumer.Config{Name: "again", Source: source, Handler: handleAll})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Run(t.Context()); !errors.Is(err, broker.ErrClosed) || !strings.Contains(err.Error(), "a source of its own") {
			t.Errorf("with a source that another Run has closed, Run returned %v", err)
		}
	})
}
