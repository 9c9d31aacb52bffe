package kafkabroker

import (
	"context"
	"fmt"
	"testing"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestTopicsWrittenOnce: of topics that are written to for a while, under names that never come again, nothing is kept for ever.
func TestTopicsWrittenOnce(t *testing.T) {
	const topics, most = 3 * mostLearned, mostLearned
	d, s := newDestinations(nil, true), &sender{}
	for i := range topics {
		name := fmt.Sprint("letters-", i)
		p := partitionID{name, 0}
		_ = d.refused(&producedError{name, &outBatch{partitionID: p, n: 2, size: 1000}, kafka.MessageSizeTooLarge})
		_ = d.refused(&producedError{name, &outBatch{partitionID: p, n: 1, codec: codecSnappy}, kafka.InvalidMessage})
		s.tooLarge(p, batchLimit)
		if n := d.limitOf(name); n != 500 {
			t.Fatalf("batches of %s may have %d bytes, want half of what was too large", name, n)
		}
		if n := s.limitOf(p); n != batchLimit/2 || d.compresses(name) {
			t.Fatalf("batches of %s may have %d bytes; compressed: %v", name, n, d.compresses(name))
		}
	}
	limits, plain, each := 0, 0, 0
	for i := range topics {
		name := fmt.Sprint("letters-", i)
		if d.limitOf(name) != batchLimit {
			limits++
		}
		if !d.compresses(name) {
			plain++
		}
		if s.limitOf(partitionID{name, 0}) != batchLimit {
			each++
		}
	}
	if limits > most || plain > most || each > most {
		t.Errorf("of %d topics %d limits are kept, %d limits of a sender, and of %d that they are not compressed", topics, limits, each,
			plain)
	}
	if n := len(d.blocks); n > most+1 {
		t.Errorf("%d topics are blocked", n)
	}
}

// TestSequencesOfManyTopics: a producer that has written to very many partitions gets a new epoch, under which all sequences
// begin anew: it need not know the old ones.
func TestSequencesOfManyTopics(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1}, "transactional")
	ts.agreeOn(t, 1) // in version 2 each transaction has an epoch of its own
	x := ts.transactor(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	write := func() {
		outs := []*broker.Outgoing{{Topic: ts.outputs, Value: []byte("a")}}
		if err := x.commit(ctx, func() bool { return true }, nil, outs); err != nil {
			t.Fatal(err)
		}
	}
	write()
	was := x.by
	for i := range int32(mostLearned + 1) {
		x.sequences[partitionID{"gone", i}] = 7
	}
	write()
	if n := len(x.sequences); n > 1 {
		t.Errorf("%d sequences are kept", n)
	}
	if x.by == was {
		t.Errorf("it is producer %v still", x.by)
	}
	if n := len(ts.stored(t, ts.outputs)); n != 2 {
		t.Errorf("%d outputs are stored, want 2", n)
	}
}

// TestLooksAtDestinations: where each transaction has outputs to other topics than the one before, brokers are not asked each
// time how they are laid out.
func TestLooksAtDestinations(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, brokertest.Setup{Topics: 3, Partitions: 1}, "transactional")
	c, err := ts.config(ts.net.link()).withDefaults().connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.transport.CloseIdleConnections()
	d := newDestinations(c, false)
	plan := func(i int) {
		if _, err := d.plan(t.Context(), []*broker.Outgoing{{Topic: ts.topics[i%len(ts.topics)], Value: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range ts.topics {
		plan(i)
	}
	before := ts.net.sent(keyMetadata)
	for i := range 30 {
		plan(i)
	}
	if n := ts.net.sent(keyMetadata) - before; n > 0 {
		t.Errorf("%d Metadata requests for 30 transactions to topics that are known", n)
	}
}
