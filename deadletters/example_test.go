package deadletters_test

import (
	"context"
	"fmt"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/deadletters"
)

// The dead letters of class timeout go back to where they came from, at most 50 a second; calling it again, also after a crash,
// goes on.
func ExampleLetters_Replay() {
	b := membroker.New(membroker.Config{}) // a service has kafkabroker.NewLogView and NewPublisher, or natsbroker's
	bury(b, "1", "timeout")
	bury(b, "2", "permanent")
	bury(b, "3", "timeout")
	ctx := context.Background()
	letters, err := deadletters.New(deadletters.Config{Topic: "orders-dead", Store: b.LogView(), Publisher: b.Publisher()})
	if err != nil {
		fmt.Println(err)
		return
	}
	replay := deadletters.Replay{
		Filter: deadletters.Filter{Class: "timeout"}, Rate: 50,
		Allow: func(origin string) bool { return origin == "orders" }, // whoever writes a letter may name any topic
	}
	for range 2 {
		sum, err := letters.Replay(ctx, replay)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("replayed", sum.Replayed, "before", sum.Before)
	}
	err = letters.List(ctx, deadletters.Filter{}, func(l *deadletters.Letter) error {
		fmt.Println(deadletters.FormatPlace(l.Place), l.Class, l.State)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// replayed 2 before 0
	// replayed 0 before 2
	// 0/0 timeout replayed
	// 0/1 permanent waiting
	// 0/2 timeout replayed
}

func bury(b *membroker.Broker, value, class string) {
	_ = b.Produce(broker.Outgoing{Topic: "orders-dead", Value: []byte(value), Headers: []broker.Header{
		{Key: broker.HeaderOriginalTopic, Value: []byte("orders")}, {Key: broker.HeaderErrorClass, Value: []byte(class)}}})
}
