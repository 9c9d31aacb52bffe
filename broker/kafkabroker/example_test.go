package kafkabroker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
)

// A source by itself, without the engine: it hands out messages, and each is settled once.
func ExampleNewSource() {
	src, err := kafkabroker.NewSource(kafkabroker.Config{
		Connection: kafkabroker.Connection{Brokers: []string{"127.0.0.1:9092"}},
		Group:      "workers",
		Topics:     []string{"orders"},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer func() { _ = src.Close(ctx) }()
	options := broker.Options{
		Budget:  broker.Budget{Messages: 1000, Bytes: 64 << 20},
		Observe: func(e broker.Event) { log.Println(e.Kind, e.Err) },
	}
	if _, err := src.Open(ctx, options); err != nil {
		log.Fatal(err)
	}
	chunk := make([]broker.Message, 64)
	for {
		n, err := src.Receive(chunk)
		if err != nil {
			log.Println(err) // broker.ErrClosed after Stop
			return
		}
		for i := range n {
			m := &chunk[i]
			fmt.Println(m.Topic, m.Partition, m.Offset, string(m.Value))
			_ = src.Ack(m.Claim, []uint64{m.Token})
		}
	}
}

// A mistaken configuration is told field by field.
func ExampleConfig() {
	_, err := kafkabroker.NewSource(kafkabroker.Config{Connection: kafkabroker.Connection{Brokers: []string{"orders"}}, Topics: []string{"orders"}})
	fmt.Println(err)
	// Output:
	// kafkabroker: Brokers[0] is "orders": it must be host:port
	// kafkabroker: Group is empty
}
