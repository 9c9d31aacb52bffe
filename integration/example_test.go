package integration_test

import (
	"context"
	"fmt"
	"log"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

func Example() {
	b := membroker.New(membroker.Config{}) // a broker in memory; on NATS: natsbroker.NewSource
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("two crates of tea")})

	ctx, stop := context.WithCancel(context.Background())
	c, err := consumer.New(consumer.Config{
		Source: b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		Pool:   consumer.Pool{Min: 1, Max: 64},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			fmt.Printf("%s: %s\n", m.Topic, m.Value)
			stop()     // enough for this example: fetching ends, what runs is finished
			return nil // acked after this; an error would bring it again, later
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: orders: two crates of tea
}
