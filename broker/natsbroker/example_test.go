package natsbroker_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// exampleServer stands for a server of yours.
func exampleServer() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true,
		NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		log.Fatal("the server is not ready")
	}
	return s.ClientURL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}

// A source on a stream that it creates, and a publisher. Programs give a source to a consumer; this is what the consumer does
// with it.
func ExampleSource() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	conn := natsbroker.Connection{URLs: []string{url}}

	source, err := natsbroker.NewSource(natsbroker.Config{
		Connection:   conn,
		Stream:       "ORDERS",
		Consumer:     "billing",
		CreateStream: &jetstream.StreamConfig{Subjects: []string{"orders.>"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = source.Open(ctx, broker.Options{
		Budget:  broker.Budget{Messages: 100, Bytes: 1 << 20},
		Observe: func(broker.Event) {},
	})
	if err != nil {
		log.Fatal(err)
	}

	publisher, err := natsbroker.NewPublisher(natsbroker.PublisherConfig{Connection: conn})
	if err != nil {
		log.Fatal(err)
	}
	if err := publisher.Publish(ctx, []broker.Outgoing{{Topic: "orders.new", Key: []byte("7"), Value: []byte("two boxes"),
		ID: "order-7"}}); err != nil {
		log.Fatal(err)
	}

	chunk := make([]broker.Message, 64)
	n, err := source.Receive(chunk)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range chunk[:n] {
		fmt.Printf("%s %s: %s\n", m.Topic, m.Key, m.Value)
		if err := source.Ack(m.Claim, []uint64{m.Token}); err != nil {
			log.Fatal(err)
		}
	}
	if err := source.Close(ctx); err != nil {
		log.Fatal(err)
	}
	if err := publisher.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: orders.new 7: two boxes
}

// Core NATS: at most once, and the traits say so.
func ExampleCoreSource() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	source, err := natsbroker.NewCoreSource(natsbroker.CoreConfig{
		Connection: natsbroker.Connection{URLs: []string{url}},
		Subjects:   []string{"metrics.>"},
		Queue:      "graphs",
	})
	if err != nil {
		log.Fatal(err)
	}
	traits, err := source.Open(ctx, broker.Options{
		Budget:  broker.Budget{Messages: 100, Bytes: 1 << 20},
		Observe: func(broker.Event) {},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("at most once:", traits.AtMostOnce)
	if err := source.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: at most once: true
}

// What is wrong with a configuration is said before anything is dialed, each finding with its field.
func ExampleNewSource_invalid() {
	_, err := natsbroker.NewSource(natsbroker.Config{
		Connection: natsbroker.Connection{URLs: []string{"nats://nats.example"}, User: "app", Password: broker.NewSecret("secret")},
		Stream:     "ORDERS",
	})
	fmt.Println(err)
	// Output:
	// natsbroker: URLs[0] is nats://nats.example: a password or token would go there without TLS; use tls:// or set PlaintextAuth
	// natsbroker: Consumer is missing
}
