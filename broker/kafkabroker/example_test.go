package kafkabroker_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
)

// A consumer on Kafka: the engine opens the source, runs the handler on what comes, commits what it has finished, and closes the
// source when ctx ends. Topics that do not exist are waited for.
func ExampleNewSource() {
	conn := kafkabroker.Connection{Brokers: []string{"127.0.0.1:9092"}}
	source, err := kafkabroker.NewSource(kafkabroker.Config{Connection: conn, Group: "billing", Topics: []string{"orders"}})
	if err != nil {
		log.Fatal(err)
	}
	letters, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: conn})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = letters.Close(context.Background()) }()
	c, err := consumer.New(consumer.Config{
		Name:   "billing",
		Source: source,
		Handler: func(_ context.Context, m *consumer.Message) error {
			fmt.Printf("%s/%d at %d: %s\n", m.Topic, m.Partition, m.Offset, m.Value)
			return nil
		},
		DeadLetter: &consumer.DeadLetter{Publisher: letters, Topic: "orders-dead"},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A mistaken configuration is told field by field.
func ExampleConfig() {
	_, err := kafkabroker.NewSource(kafkabroker.Config{Connection: kafkabroker.Connection{Brokers: []string{"orders"}},
		Topics: []string{"orders"}})
	fmt.Println(err)
	// Output:
	// kafkabroker: Brokers[0] is "orders", want host:port, as in 127.0.0.1:9092
	// kafkabroker: Group is missing
}
