package kafkabroker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// balancers are the clients' own of each kind, as kafka-go has them.
var balancers = map[string]kafka.Balancer{
	"":                 kafka.Murmur2Balancer{},
	"murmur2":          kafka.Murmur2Balancer{},
	"fnv1a":            &kafka.Hash{},
	"fnv1a_reference":  &kafka.ReferenceHash{},
	"crc32":            kafka.CRC32Balancer{},
	"crc32_consistent": kafka.CRC32Balancer{Consistent: true},
}

// TestPartitioners: a key is in the partition that the clients of its kind choose, for any number of partitions.
func TestPartitioners(t *testing.T) {
	keys := [][]byte{[]byte("c23"), []byte("c34"), []byte("bad"), []byte("a"), {0xff, 0xff, 0xff}, {}}
	for range 2000 {
		key := make([]byte, rand.IntN(40))
		for i := range key {
			key[i] = byte(rand.Uint32())
		}
		keys = append(keys, key)
	}
	for kind, theirs := range balancers {
		for i, key := range keys {
			if len(key) == 0 && kind == "crc32" { // as without a key
				continue
			}
			n := 1 + i%97
			var k keyless
			want := theirs.Balance(kafka.Message{Key: key}, numbersTo(n)...)
			if got := partitioner(kind).partition(&broker.Outgoing{Key: key}, n, &k); int(got) != want {
				t.Errorf("%q: key %x of %d partitions is in %d, want %d", kind, key, n, got, want)
			}
		}
	}
}

// TestPartitionersKnown: what other clients were seen to do, so that a change of kafka-go does not change it.
func TestPartitionersKnown(t *testing.T) {
	for kind, want := range map[string][3]int32{ // of c23, c34 and bad, of six partitions
		"murmur2": {5, 4, 4}, "fnv1a": {1, 3, 0},
	} {
		for i, key := range []string{"c23", "c34", "bad"} {
			if got := partitioner(kind).partition(&broker.Outgoing{Key: []byte(key)}, 6, new(keyless)); got != want[i] {
				t.Errorf("%s: key %s is in %d, want %d", kind, key, got, want[i])
			}
		}
	}
}

// TestPartitionersWithoutKey: what has no key goes round, but where its client hashes that, too.
func TestPartitionersWithoutKey(t *testing.T) {
	for kind := range balancers {
		for _, key := range [][]byte{nil, {}} {
			seen, k := map[int32]int{}, new(keyless)
			for range 40 {
				seen[partitioner(kind).partition(&broker.Outgoing{Key: key}, 4, k)]++
			}
			want := 4
			if kind == "crc32_consistent" || key != nil && kind != "crc32" {
				want = 1
			}
			if len(seen) != want {
				t.Errorf("%q, key %#v: 40 messages went to %v, want %d partitions", kind, key, seen, want)
			}
		}
	}
	if got := partitioner("crc32_consistent").partition(&broker.Outgoing{}, 4, new(keyless)); got != 0 {
		t.Errorf("librdkafka's consistent writes what has no key to 0, and this to %d", got)
	}
}

// TestPublisherPartitions: a publisher writes where its Partitioner says, and where a message names its partition, there.
func TestPublisherPartitions(t *testing.T) {
	t.Parallel()
	for kind, theirs := range balancers {
		ts := newTestSystem(t, 6, 1)
		p, err := NewPublisher(PublisherConfig{Connection: ts.config(ts.net.link()).Connection, Partitioner: kind})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close(context.Background()) }()
		want := map[int32]int64{}
		var ms []broker.Outgoing
		for i := range 60 {
			o := broker.Outgoing{Topic: ts.topics[0], Key: fmt.Appendf(nil, "c%d", i), Value: []byte("v")}
			to := int32(theirs.Balance(kafka.Message{Key: o.Key}, numbersTo(6)...))
			switch chosen := int32(i % 7); i % 3 {
			case 0: // 6 is none of them
				if o.Partition = &chosen; chosen < 6 {
					to = chosen
				}
			case 1:
				no := int32(-1)
				o.Partition = &no
			}
			want[to]++
			ms = append(ms, o)
		}
		if err := p.Publish(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		for no := range int32(6) {
			if n := ts.cluster.PartitionInfo(ts.topics[0], no).HighWatermark; n != want[no] {
				t.Errorf("%q: partition %d has %d messages, want %d", kind, no, n, want[no])
			}
		}
	}
}

// TestOutputsPartition: so does what is emitted.
func TestOutputsPartition(t *testing.T) {
	no := int32(2)
	outs := []*broker.Outgoing{{Topic: "out", Key: []byte("bad")}, {Topic: "out", Key: []byte("bad"), Partition: &no}}
	layouts := map[string]topic{"out": {leaders: []int32{1, 1, 1, 1, 1, 1}}}
	for kind, want := range map[partitioner]int32{"": 4, "fnv1a": 0} {
		n := map[int32]int{}
		for _, b := range batchesOf(outs, layouts, func(string) int { return batchLimit }, kind)[0] {
			n[b.no] += b.n
		}
		if n[want] != 1 || n[2] != 1 {
			t.Errorf("%q: outputs went to %v, want one to %d and one to 2", kind, n, want)
		}
	}
}

// TestPartitionersDiffer: a publisher to the cluster of a transactional source that has another partitioner is told of, once.
func TestPartitionersDiffer(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "transactional")
	r := startRunner(t, ts.config(ts.net.link()))
	for _, tc := range []struct {
		partitioner string
		told        int
	}{{"", 0}, {"murmur2", 0}, {"fnv1a", 1}, {"crc32", 1}} {
		conf := PublisherConfig{Connection: ts.config(ts.net.link()).Connection, Partitioner: tc.partitioner}
		p, err := NewPublisher(conf)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close(context.Background()) }()
		if !r.s.Carries(p) {
			t.Errorf("%q: it is not carried", tc.partitioner)
		}
		told := func() (n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, e := range r.events {
				if e.Kind == broker.Warning && strings.Contains(e.Err.Error(), "two partitions") {
					n++
				}
			}
			return n
		}
		if tc.told > 0 {
			eventually(t, "it is told", func() bool { return told() > 0 })
		}
		if n := told(); n != tc.told {
			t.Errorf("%q: told %d times, want %d", tc.partitioner, n, tc.told)
		}
	}
}
