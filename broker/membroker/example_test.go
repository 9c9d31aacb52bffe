package membroker_test

import (
	"context"
	"fmt"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

func Example() {
	ctx := context.Background()
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}})
	_ = b.Produce(
		broker.Outgoing{Topic: "orders", Value: []byte("first")},
		broker.Outgoing{Topic: "orders", Value: []byte("second")},
	)

	s := b.Source(membroker.SourceConfig{Group: "workers"})
	_, err := s.Open(ctx, broker.Options{
		Budget:  broker.Budget{Messages: 10, Bytes: 1 << 20},
		Observe: func(broker.Event) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	chunk := make([]broker.Message, 10)
	n, err := s.Receive(chunk)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range chunk[:n] {
		fmt.Printf("offset %d: %s\n", m.Offset, m.Value)
	}
	_ = s.Ack(chunk[0].Claim, []uint64{chunk[0].Token})
	_ = s.Nack(chunk[1].Claim, []broker.Back{{Token: chunk[1].Token, Runs: 1}})
	_ = s.Close(ctx)
	fmt.Println("settled:", b.Settled("workers", "orders", 0, 0), b.Settled("workers", "orders", 0, 1))
	fmt.Println("unsettled:", b.Unsettled("workers"))
	// Output:
	// offset 0: first
	// offset 1: second
	// settled: true false
	// unsettled: 1
}

// A process that dies without a goodbye loses nothing: another one gets what it had not settled.
func ExampleSource_Kill() {
	ctx := context.Background()
	b := membroker.New(membroker.Config{Leased: true, Topics: map[string]int{"orders": 1}})
	_ = b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("hello")})
	o := broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(broker.Event) {}}
	chunk := make([]broker.Message, 10)

	first := b.Source(membroker.SourceConfig{})
	_, _ = first.Open(ctx, o)
	_, _ = first.Receive(chunk)
	first.Kill()

	// Its lease of 10 s would run out some day; Redeliver does not wait for it.
	_ = b.Redeliver("group", "orders", -1, chunk[0].Offset)
	second := b.Source(membroker.SourceConfig{})
	_, _ = second.Open(ctx, o)
	_, _ = second.Receive(chunk)
	fmt.Printf("%s, attempt %d\n", chunk[0].Value, chunk[0].Attempt)
	_ = second.Close(ctx)
	// Output:
	// hello, attempt 2
}
