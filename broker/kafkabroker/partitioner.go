package kafkabroker

import (
	"cmp"
	"hash/crc32"
	"math/rand/v2"
	"sync/atomic"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// A partitioner is how a key chooses its partition, as in PublisherConfig.Partitioner; empty is murmur2.
type partitioner string

const (
	byMurmur2         partitioner = "murmur2"
	byFNV1a           partitioner = "fnv1a"
	byFNV1aReference  partitioner = "fnv1a_reference"
	byCRC32           partitioner = "crc32"
	byCRC32Consistent partitioner = "crc32_consistent"
)

// name is what the settings call it.
func (by partitioner) name() partitioner { return cmp.Or(by, byMurmur2) }

// partition is where o goes, in a topic of n partitions.
func (by partitioner) partition(o *broker.Outgoing, n int, k *keyless) int32 {
	if p := o.Partition; p != nil && *p >= 0 && int(*p) < n {
		return *p
	}
	switch none := o.Key == nil; {
	case none && by != byCRC32Consistent, len(o.Key) == 0 && by == byCRC32:
		return int32(k.next() % uint32(n))
	}
	switch by {
	case byFNV1a: // the remainder of a negative number is negative in Go, and they take its amount
		return max(int32(fnv1a(o.Key))%int32(n), -(int32(fnv1a(o.Key)) % int32(n)))
	case byFNV1aReference:
		return int32(fnv1a(o.Key)&0x7fffffff) % int32(n)
	case byCRC32, byCRC32Consistent:
		return int32(crc32.ChecksumIEEE(o.Key) % uint32(n))
	}
	return int32(murmur2.Balance(kafka.Message{Key: o.Key}, numbersTo(n)...))
}

// fnv1a is the hash FNV-1a with 32 bits.
func fnv1a(key []byte) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, c := range key {
		h = (h ^ uint32(c)) * prime
	}
	return h
}

// A keyless counts a topic's messages without a key: they go round its partitions. Were they counted for all topics together, one
// of two topics that are written to in turns would have all its messages in each second partition. It begins anywhere, for what
// is written at a time may be one message.
type keyless struct{ n atomic.Uint32 }

func (k *keyless) next() uint32 {
	if k.n.Load() == 0 {
		k.n.CompareAndSwap(0, rand.Uint32())
	}
	return k.n.Add(1)
}

var (
	murmur2 = kafka.Murmur2Balancer{Consistent: true}
	numbers atomic.Pointer[[]int] // 0, 1, 2, …: a Balancer wants the partitions' numbers
)

// numbersTo are 0, …, n-1.
func numbersTo(n int) []int {
	if all := numbers.Load(); all != nil && n <= len(*all) {
		return (*all)[:n]
	}
	all := make([]int, 2*n)
	for i := range all {
		all[i] = i
	}
	numbers.Store(&all)
	return all[:n]
}
