package membroker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
)

func TestSmoke(t *testing.T) {
	for _, leased := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := New(Config{Leased: leased, Topics: map[string]int{"orders": 2}})
			for range 100 {
				b.Produce(broker.Outgoing{Topic: "orders", Value: []byte("x")})
			}
			s := b.Source(SourceConfig{})
			_, err := s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(e broker.Event) { t.Log(e.Kind, e.Err) }})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			dst := make([]broker.Message, 7)
			for n < 100 {
				k, err := s.Receive(dst)
				if err != nil {
					t.Fatal(err)
				}
				var toks []uint64
				for _, m := range dst[:k] {
					toks = append(toks, m.Token)
				}
				if dst[0].Runs == 0 && n%3 == 1 {
					var bs []broker.Back
					for _, m := range dst[:k] {
						bs = append(bs, broker.Back{Token: m.Token, Delay: time.Second, Runs: 1})
					}
					if err := s.Nack(dst[0].Claim, bs); err != nil {
						t.Fatal(err)
					}
				} else {
					n += k
					if err := s.Ack(dst[0].Claim, toks); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(time.Second)
			if u := b.Unsettled("group"); u != 0 {
				t.Error(u)
			}
			t.Log(s.Lag(), b.Stats("group"))
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func BenchmarkSerial(b *testing.B) {
	for _, leased := range []bool{false, true} {
		for _, size := range []int{64, 512} {
			name := map[bool]string{false: "partitioned", true: "leased"}[leased]
			b.Run(name+"/"+map[int]string{64: "64", 512: "512"}[size], func(b *testing.B) {
				br := New(Config{Leased: leased, Topics: map[string]int{"orders": 8}})
				ms := make([]broker.Outgoing, 1024)
				for i := range ms {
					ms[i] = broker.Outgoing{Topic: "orders", Value: make([]byte, 100)}
				}
				for p := range 8 {
					br.Fill(p, int64(b.N), ms...)
				}
				s := br.Source(SourceConfig{Prefetch: 1024})
				s.Open(context.Background(), broker.Options{Budget: broker.Budget{Messages: 8192, Bytes: 64 << 20}, Observe: func(e broker.Event) {}})
				defer s.Close(context.Background())
				dst := make([]broker.Message, size)
				toks := make([]uint64, 0, size)
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; {
					k, err := s.Receive(dst)
					if err != nil {
						b.Fatal(err)
					}
					toks = toks[:0]
					for i := range dst[:k] {
						toks = append(toks, dst[i].Token)
					}
					s.Ack(dst[0].Claim, toks)
					n += k
				}
			})
		}
	}
}
