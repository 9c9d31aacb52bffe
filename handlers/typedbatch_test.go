package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
)

// What cannot be decoded decides about itself alone, and what the function says is for the messages that it was given.
func TestJSONBatch(t *testing.T) {
	const good, bad = `{"id":"a"}`, `{"id":1}`
	flaky := errors.New("away")
	second := &consumer.BatchError{Errs: []error{nil, consumer.Permanent(flaky)}}
	fine := &consumer.BatchError{Errs: make([]error, 2)}
	for name, c := range map[string]struct {
		values []string
		err    error
		want   string
	}{
		"all good":                    {[]string{good, good}, nil, "acked acked"},
		"all good, one failed":        {[]string{good, good}, second, "acked permanent"},
		"all good, all failed":        {[]string{good, good}, flaky, "retry retry"},
		"one bad":                     {[]string{good, bad, good}, nil, "acked permanent acked"},
		"one bad, all others failed":  {[]string{bad, good, good}, flaky, "permanent retry retry"},
		"one bad, another one failed": {[]string{good, bad, good}, second, "acked permanent permanent"},
		"one bad, told of too few":    {[]string{good, bad, good, good}, second, "retry permanent retry retry"},
		"one bad, and all failed":     {[]string{good, bad, good}, errors.Join(fine, flaky), "retry permanent retry"},
		"none good":                   {[]string{bad, ""}, flaky, "permanent permanent"},
		"empty":                       {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := handlers.JSONBatch(func(_ context.Context, vs []order, ms []*consumer.Message) error {
				if len(vs) != len(ms) || len(vs) == 0 && len(c.values) > 0 {
					t.Errorf("%d values of %d messages", len(vs), len(ms))
				}
				for i, m := range ms {
					if string(m.Value) != good || vs[i].ID != "a" {
						t.Errorf("%+v of %s", vs[i], m.Value)
					}
				}
				return c.err
			})
			if got := strings.Join(verdicts(h, c.values...), " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Of a batch with one message that is no JSON that one is a dead letter, of the class decode, and the others are written once.
func TestJSONBatchInAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{})
		for _, v := range []string{`{"id":"a"}`, `{`, `{"id":"b"}`} {
			if err := b.Produce(broker.Outgoing{Topic: "orders", Value: []byte(v)}); err != nil {
				t.Fatal(err)
			}
		}
		var ids []string
		c, err := consumer.New(consumer.Config{
			Source:     b.Source(membroker.SourceConfig{Group: "g", Topics: []string{"orders"}}),
			DeadLetter: &consumer.DeadLetter{Publisher: b.Publisher(), Topic: "dead"},
			Batch: &consumer.Batch{Size: 3, Handler: handlers.JSONBatch(
				func(_ context.Context, vs []*order, _ []*consumer.Message) error {
					for _, o := range vs {
						ids = append(ids, o.ID)
					}
					return nil
				})},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- c.Run(ctx) }()
		for b.Unsettled("g") != 0 {
			time.Sleep(time.Second)
		}
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
		letters := b.Messages("dead")
		if slices.Sort(ids); !slices.Equal(ids, []string{"a", "b"}) || len(letters) != 1 || string(letters[0].Value) != "{" {
			t.Fatalf("written %q, %d dead letters", ids, len(letters))
		}
		if class, _ := letters[0].Headers.Get(broker.HeaderErrorClass); string(class) != "decode" {
			t.Errorf("its class is %q", class)
		}
	})
}

func ExampleJSONBatch() {
	type Order struct{ ID string }
	h := handlers.JSONBatch(func(_ context.Context, orders []Order, _ []*consumer.Message) error {
		fmt.Println("one write for", orders)
		return nil
	})
	batch := &consumer.Batch{Size: 500, Handler: h} // Config.Batch, in place of Config.Handler
	err := batch.Handler(context.Background(), []*consumer.Message{
		{Value: []byte(`{"id": "o-1"}`)}, {Value: []byte(`{"id": 2}`)}, {Value: []byte(`{"id": "o-3"}`)},
	})
	fmt.Println(err)
	// Output:
	// one write for [{o-1} {o-3}]
	// decoding 9 bytes as handlers_test.Order: field ID wants string, is a number
}
