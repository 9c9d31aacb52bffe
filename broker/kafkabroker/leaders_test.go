package kafkabroker

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestPublishersDoNotQueue: nobody answers, so that who leads a topic cannot be found out. Callers that publish beside each other
// are told so when one that is alone is, or nearly so, however many they are.
func TestPublishersDoNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(n int) time.Duration {
			c := PublisherConfig{Connection: Connection{Brokers: []string{"kafka:9092"}}}
			c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, errors.New("no answer")
			}
			p, err := NewPublisher(c)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					if err := p.Publish(context.Background(), []broker.Outgoing{{Topic: "out"}}); err == nil {
						t.Error("published")
					}
				})
			}
			all.Wait()
			d := time.Since(began)
			if err := p.Close(context.Background()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			return d
		}
		one, many := took(1), took(50)
		if many > 3*one {
			t.Errorf("one is told after %v, and the last of 50 after %v", one, many)
		}
	})
}
