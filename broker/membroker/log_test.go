package membroker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// A repeated ID is stored once, for each partition or stream; it travels as a header.
func TestRepeatedID(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		for range 3 {
			if err := b.Produce(broker.Outgoing{Topic: "orders", ID: "one",
				Headers: []broker.Header{{Key: "a", Value: []byte("1")}}}); err != nil {
				t.Fatal(err)
			}
		}
		ms := b.Messages("orders")
		if len(ms) != 1 {
			t.Fatalf("%d messages are stored, want 1", len(ms))
		}
		if v, _ := ms[0].Headers.Get(broker.HeaderID); string(v) != "one" || ms[0].Headers.Len() != 2 {
			t.Errorf("the header says %q", v)
		}
	})
}

func TestKeysKeepTheirPartition(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 8}})
	for range 5 {
		for _, key := range []string{"a", "b", "c", "d"} {
			if err := b.Produce(broker.Outgoing{Topic: "orders", Key: []byte(key)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := map[string]int32{}
	for _, m := range b.Messages("orders") {
		if p, known := at[string(m.Key)]; known && p != m.Partition {
			t.Errorf("key %q is in partitions %d and %d", m.Key, p, m.Partition)
		}
		at[string(m.Key)] = m.Partition
	}
	if len(at) != 4 {
		t.Errorf("keys are %v", at)
	}
}

// Fill stores a long log in the memory of a few messages; offsets go on through it.
func TestFill(t *testing.T) {
	both(t, func(t *testing.T, c membroker.Config) {
		b := membroker.New(c)
		if err := b.Fill(0, 1000, broker.Outgoing{Topic: "orders", Value: []byte("0")},
			broker.Outgoing{Topic: "orders", Value: []byte("1")},
			broker.Outgoing{Topic: "orders", Value: []byte("2")}); err != nil {
			t.Fatal(err)
		}
		produce(t, b, "orders", 1)
		s := open(t, b, membroker.SourceConfig{Prefetch: 7}, 2000)
		ms := s.receive(1001)
		first := ms[0].Offset
		for i, m := range ms {
			if want := string("012"[i%3]); i < 1000 && string(m.Value) != want || m.Offset != first+int64(i) {
				t.Fatalf("message %d is %q at offset %d", i, m.Value, m.Offset)
			}
		}
		if err := s.ack(ms...); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n := b.Unsettled("group"); n != 0 {
			t.Errorf("%d are unsettled", n)
		}
	})
}

// A stream has all topics, and a group sees its own.
func TestStreamOfSeveralTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Leased: true})
		for range 3 {
			produce(t, b, "other", 2)
			produce(t, b, "orders", 2)
		}
		s := open(t, b, membroker.SourceConfig{Topics: []string{"orders"}}, 100)
		ms := s.receive(6)
		for i, want := range []int64{3, 4, 7, 8, 11, 12} {
			if ms[i].Offset != want || ms[i].Topic != "orders" {
				t.Errorf("message %d is %s/%d, want orders/%d", i, ms[i].Topic, ms[i].Offset, want)
			}
		}
		if err := s.ack(ms...); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n, l := b.Unsettled("group"), s.Lag(); n != 0 || l.Unsettled != 0 || l.Waiting != 0 {
			t.Errorf("%d are unsettled, the lag is %+v", n, l)
		}
		if !b.Settled("group", "orders", -1, 12) || b.Settled("group", "elsewhere", -1, 1) {
			t.Error("Settled is wrong")
		}
	})
}
