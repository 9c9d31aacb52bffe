package membroker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// BenchmarkSerial is the floor that the engine's overhead is measured above: one goroutine receives and acks.
func BenchmarkSerial(b *testing.B) {
	for _, leased := range []bool{false, true} {
		for _, chunk := range []int{64, 512} {
			for _, fresh := range []bool{false, true} {
				name := fmt.Sprintf("leased=%v/chunk=%d/fresh=%v", leased, chunk, fresh)
				b.Run(name, func(b *testing.B) { serial(b, leased, chunk, fresh) })
			}
		}
	}
}

func serial(b *testing.B, leased bool, chunk int, fresh bool) {
	br := membroker.New(membroker.Config{Leased: leased, Topics: map[string]int{"orders": 8}})
	ms := make([]broker.Outgoing, 1024)
	for i := range ms {
		ms[i] = broker.Outgoing{Topic: "orders", Value: make([]byte, 100)}
	}
	for p := range 8 {
		if err := br.Fill(p, int64(b.N), ms...); err != nil {
			b.Fatal(err)
		}
	}
	s := br.Source(membroker.SourceConfig{Prefetch: 1024})
	ctx := context.Background()
	o := broker.Options{Budget: broker.Budget{Messages: 8192, Bytes: 64 << 20}, Observe: func(broker.Event) {}}
	if _, err := s.Open(ctx, o); err != nil {
		b.Fatal(err)
	}
	defer s.Close(ctx)
	dst := make([]broker.Message, chunk)
	tokens := make([]uint64, chunk)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		if fresh {
			dst = make([]broker.Message, chunk)
		}
		n, err := s.Receive(dst)
		if err != nil {
			b.Fatal(err)
		}
		for i := range dst[:n] {
			tokens[i] = dst[i].Token
		}
		if err := s.Ack(dst[0].Claim, tokens[:n]); err != nil {
			b.Fatal(err)
		}
		done += n
	}
}
