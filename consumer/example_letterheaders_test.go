package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

// oldTool is a publisher whose dead letters have a header of an older tool, too. Unwrap and Prepare keep letters in the
// transactions of a source that has some.
type oldTool struct{ broker.Publisher }

func (o oldTool) Unwrap() broker.Publisher { return o.Publisher }

// Prepare does not write to ms: a publish that fails is tried again with the same.
func (o oldTool) Prepare(_ context.Context, ms []broker.Outgoing) []broker.Outgoing {
	outs := make([]broker.Outgoing, len(ms))
	for i, m := range ms {
		headers := append([]broker.Header(nil), m.Headers...)
		for _, h := range m.Headers {
			if h.Key == broker.HeaderError {
				headers = append(headers, broker.Header{Key: "x-error", Value: h.Value})
			}
		}
		m.Headers = headers
		outs[i] = m
	}
	return outs
}

func (o oldTool) Publish(ctx context.Context, ms []broker.Outgoing) error {
	return o.Publisher.Publish(ctx, o.Prepare(ctx, ms))
}

// Dead letters with headers that a tool of your own reads. The names of Spring and of Kafka Connect are DeadLetter.Headers. On
// Kafka and NATS the publisher p looks for its topics, too, and this keeps it:
//
//	struct {
//		oldTool
//		broker.Destinations
//	}{oldTool{p}, p}
func ExampleDeadLetter_ownHeaders() {
	b := membroker.New(membroker.Config{})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("no order")})
	publisher := b.Publisher()
	ctx, stop := context.WithCancel(context.Background())
	c, err := consumer.New(consumer.Config{
		Source:     b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		DeadLetter: &consumer.DeadLetter{Publisher: oldTool{publisher}, Topic: "orders-dead"},
		Observers: []consumer.Observer{func(e consumer.Event) {
			if _, ok := e.(consumer.DeadLettered); ok {
				stop()
			}
		}},
		Handler: func(context.Context, *consumer.Message) error {
			return consumer.Permanent(errors.New("an order of nothing"))
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
	why, _ := b.Messages("orders-dead")[0].Headers.Get("x-error")
	fmt.Printf("%s\n", why)
	// Output: an order of nothing
}
