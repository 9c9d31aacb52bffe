package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
)

const (
	partitions   = 8
	engineBudget = 8192
)

// serviceHeap is what a service holds anyway. In a process that holds next to nothing the collector runs every 4 MiB, and is most
// of what is measured.
const serviceHeap = 64 << 20

// inHeap measures in a process that holds so many bytes.
func inHeap(size int, measure func(n int) sample) func(n int) sample {
	return func(n int) sample {
		held := make([]byte, size)
		defer runtime.KeepAlive(held)
		return measure(n)
	}
}

// memory makes a broker with n messages of 100 bytes, and a source of it.
func memory(n int, headers ...broker.Header) *membroker.Source {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": partitions}})
	ms := make([]broker.Outgoing, 1024) // longer than any chunk: a source hands out no more than one repetition at once
	for i := range ms {
		ms[i] = broker.Outgoing{Topic: "orders", Key: fmt.Appendf(nil, "key-%d", i), Value: make([]byte, 100), Headers: headers}
	}
	for p := range partitions {
		share := n / partitions
		if p == 0 {
			share += n % partitions
		}
		check(b.Fill(p, int64(share), ms...))
	}
	return b.Source(membroker.SourceConfig{Group: "workers", Prefetch: 4096})
}

// serial is the floor: receive, handle, ack, in one loop, with slices that are never used twice, as the engine lends them.
func serial(n, chunk int, do func(int)) sample {
	s := memory(n)
	_ = must(s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: engineBudget, Bytes: 64 << 20},
		Observe: func(broker.Event) {}}))
	var slab []broker.Message
	tokens := make([]uint64, chunk)
	m := start()
	for left := n; left > 0; {
		if len(slab) < chunk/4 {
			slab = make([]broker.Message, chunk)
		}
		got := must(s.Receive(slab))
		for i := range slab[:got] {
			do(i)
			tokens[i] = slab[i].Token
		}
		check(s.Ack(slab[0].Claim, tokens[:got]))
		slab = slab[got:]
		left -= got
	}
	sample := m.stop(n)
	check(s.Close(context.Background()))
	return sample
}

// byChannel is how one would do it by hand: a loop that receives, a channel, goroutines that handle and ack.
func byChannel(n int, do func(int)) sample {
	s := memory(n)
	_ = must(s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: engineBudget, Bytes: 64 << 20},
		Observe: func(broker.Event) {}}))
	ch := make(chan broker.Message, 1024)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for m := range ch {
				do(0)
				check(s.Ack(m.Claim, []uint64{m.Token}))
			}
		})
	}
	m := start()
	ms := make([]broker.Message, 128)
	for left := n; left > 0; {
		got := must(s.Receive(ms))
		for _, m := range ms[:got] {
			ch <- m
		}
		left -= got
	}
	close(ch)
	wg.Wait()
	sample := m.stop(n)
	check(s.Close(context.Background()))
	return sample
}

// engine is the whole consumer, until its last ack. least workers to 64.
func engine(n, chunk, least int, do func(int)) sample {
	c := must(consumer.New(consumer.Config{
		Source: memory(n), Pool: consumer.Pool{Min: least, Max: workers}, Chunk: chunk,
		Budget:  broker.Budget{Messages: engineBudget, Bytes: 64 << 20},
		Handler: func(context.Context, *consumer.Message) error { do(0); return nil },
	}))
	return untilHandled(c, n)
}

// inBatches is the whole consumer with a handler of batches of 100, until its last ack.
func inBatches(n int) sample {
	return untilHandled(must(consumer.New(consumer.Config{
		Source: memory(n), Pool: consumer.Pool{Min: 1, Max: workers}, Budget: broker.Budget{Messages: engineBudget, Bytes: 64 << 20},
		Batch: &consumer.Batch{Size: 100, Handler: func(context.Context, []*consumer.Message) error { return nil }},
	})), n)
}

// untilHandled runs c until n messages are acked.
func untilHandled(c *consumer.Consumer, n int) sample {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	m := start()
	go func() { ended <- c.Run(ctx) }()
	for c.Stats().Handled < int64(n) { // looked at, for a count of its own would cost each message more than the engine does
		time.Sleep(time.Millisecond)
	}
	sample := m.stop(n)
	cancel()
	select {
	case err := <-ended:
		check(err)
	case <-time.After(time.Minute):
		panic("the engine does not stop")
	}
	return sample
}
