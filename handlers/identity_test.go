package handlers_test

import (
	"fmt"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// A bank that is told the same key twice charges once.
func ExampleIdentity() {
	charged := map[string]bool{}
	charge := func(m *consumer.Message) {
		key := handlers.Identity(m) // the request's Idempotency-Key
		if charged[key] {
			fmt.Println("known:", key)
			return
		}
		charged[key] = true
		fmt.Println("charged:", key)
	}
	charge(&consumer.Message{Topic: "orders", Partition: 3, Offset: 7, Nanos: 1_000_000_000})
	charge(&consumer.Message{Topic: "orders", Partition: 3, Offset: 7, Nanos: 1_000_000_000, Attempt: 2})
	// Output:
	// charged: orders/3/7//1000000000
	// known: orders/3/7//1000000000
}
