package kafkabroker

import (
	"context"
	"fmt"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

// TestKeylessGoRound: messages without a key reach all partitions of their topic, also where those to several topics take turns.
func TestKeylessGoRound(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 2, 2)
	var ms []broker.Outgoing
	for i := range 40 {
		ms = append(ms, broker.Outgoing{Topic: ts.topics[i%2], Value: []byte("a")})
	}
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	for i := range ms[:20] {
		if err := p.Publish(t.Context(), ms[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Publish(t.Context(), ms[20:]); err != nil {
		t.Fatal(err)
	}
	for _, topic := range ts.topics {
		for no := range int32(2) {
			if n := ts.cluster.PartitionInfo(topic, no).HighWatermark; n != 10 {
				t.Errorf("%s/%d has %d of 20 messages, want half of them", topic, no, n)
			}
		}
	}
}

// TestKeylessOutputsGoRound is that for outputs.
func TestKeylessOutputsGoRound(t *testing.T) {
	var outs []*broker.Outgoing
	for i := range 40 {
		outs = append(outs, &broker.Outgoing{Topic: fmt.Sprint(i % 2), Value: []byte("a")})
	}
	layouts := map[string]topic{"0": {leaders: []int32{1, 1}}, "1": {leaders: []int32{1, 1}}}
	for _, round := range batchesOf(outs, layouts, func(string) int { return batchLimit }, "") {
		for _, b := range round {
			if b.n != 10 {
				t.Errorf("%s/%d has %d of 20 messages, want half of them", b.topic, b.no, b.n)
			}
		}
	}
}
