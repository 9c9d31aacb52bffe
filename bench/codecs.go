package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/integration/kafkad"
)

// A codec is how the batches of a topic are compressed.
type codec struct {
	name string
	kgo  kgo.CompressionCodec
}

var codecs = []codec{
	{"lz4", kgo.Lz4Compression()}, {"snappy", kgo.SnappyCompression()}, {"gzip", kgo.GzipCompression()},
	{"zstd", kgo.ZstdCompression()},
}

// orderEvents are bodies of about 500 bytes as services send them: the same fields, other values. They shrink to about a fourth.
func orderEvents() (bodies [][]byte) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		b := fmt.Appendf(nil, `{"order_id":"%016x","customer":{"id":%d,"country":"DE","tier":"gold"},"items":[`,
			rnd.Uint64(), rnd.IntN(1e6))
		for i := range 4 {
			b = fmt.Appendf(b, `{"sku":"%08x","quantity":%d,"unit_price":%d.%02d,"currency":"EUR"},`,
				rnd.Uint32(), i+1, rnd.IntN(500), rnd.IntN(100))
		}
		b = fmt.Appendf(b, `null],"created_at":"2026-01-01T%02d:%02d:%02dZ"}`, rnd.IntN(24), rnd.IntN(60), rnd.IntN(60))
		bodies = append(bodies, b)
	}
	return bodies
}

// withCodecs is withKafka with a topic of each codec.
func withCodecs(n int, do func(where string)) error {
	return onKafka(func(brokers []string) error {
		prefix, bodies := kafkad.Unique("bench"), orderEvents()
		for _, c := range codecs {
			err := fillRecords(brokers, prefix+"-"+c.name, kafkaPartitions, 500, func(yield func(*kgo.Record) bool) {
				for i := range n {
					if !yield(&kgo.Record{Partition: int32(i / runLength % kafkaPartitions), Value: bodies[i%len(bodies)]}) {
						return
					}
				}
			}, kgo.ProducerBatchCompression(c.kgo))
			if err != nil {
				return fmt.Errorf("filling a topic with %s: %w", c.name, err)
			}
		}
		do(prefix + "@" + strings.Join(brokers, ","))
		return nil
	})
}

// at is where the codec's topic is.
func (c codec) at(where string) string {
	prefix, brokers, _ := strings.Cut(where, "@")
	return prefix + "-" + c.name + "@" + brokers
}

func codecSystems() (all []system) {
	for _, c := range codecs {
		all = append(all,
			system{"longshore_" + c.name, 500_000, func(n int, where string) sample { return longshoreOf(c.at(where), n, 0, 0, noop) }},
			system{"franz_" + c.name, 500_000, func(n int, where string) sample { return franzOf(c.at(where), n) }})
	}
	return all
}

// codecFigures has rates and CPU with the start, as partitionFigures has.
func codecFigures(m map[string]sample) (fs []figure) {
	for _, c := range codecs {
		l, f := m["longshore_"+c.name], m["franz_"+c.name]
		cpu, franz := l.CPUNS+l.StartNS, f.CPUNS+f.StartNS
		fs = append(fs, atMost("codec_"+c.name+"_cpu_vs_franz", cpu/franz, 1.05),
			show("codec_"+c.name+"_rate_vs_franz", f.AllWallNS/l.AllWallNS),
			show("codec_"+c.name+"_cpu_us", cpu/1e3), show("codec_"+c.name+"_cpu_us_franz", franz/1e3))
	}
	return fs
}
