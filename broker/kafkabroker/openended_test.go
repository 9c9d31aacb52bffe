package kafkabroker

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestOpenEnded: a partition cannot begin while a transaction of somebody else is open that may change what is committed. Where
// that takes longer than transactions do, it is told which partition waits; and when the transaction ends, it begins.
func TestOpenEnded(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, testOpenEnded)
}

func testOpenEnded(t *testing.T, ts *testSystem) {
	ts.put(t, ts.topics[0], 0, 5)
	end := ts.commitInOpenTransaction(t, 2)
	cfg := ts.config(ts.net.link())
	cfg.Transactional, cfg.TransactionTimeout = true, 300*time.Millisecond
	r := startRunner(t, cfg)
	eventually(t, "it is told that the partition waits", func() bool {
		e, said := r.event(broker.Warning, "transaction")
		return said && strings.Contains(e.Err.Error(), ts.topics[0]+"/0")
	})
	if n := len(r.seen()); n > 0 {
		t.Errorf("%d messages came while nobody knows where the partition begins", n)
	}
	end()
	eventually(t, "the partition begins where the transaction has committed", func() bool { return len(r.seen()) == 3 })
}

// TestHidden: all was read up to a transaction that never ends, and what is written behind it does not come. No lag has it. It is
// told, by the partition's name and with each doubling of the time; and not when that transaction has ended, and another one is
// open for less.
func TestHidden(t *testing.T) {
	cfg := Config{}.withDefaults()
	events := kit.NewEventQueue()
	var said []error
	events.Observe(func(e broker.Event) { said = append(said, e.Err) })
	h := newHoldings(&cfg, newBells(), events, &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
	p := h.place("orders", 3)
	p.moveTo(1)
	p.pos, p.scan = 7, 7
	now := time.Unix(1000, 0)
	stand := func(stable, high int64, d time.Duration) (told int) {
		t.Helper()
		said = nil
		for over := now.Add(d); now.Before(over); now = now.Add(time.Minute) {
			for _, f := range h.plan(now) {
				h.arrived(f, []fetched{{partitionID: p.partitionID, high: high, stable: stable, preferred: -1}}, nil, now)
			}
		}
		events.Tell()
		return len(said)
	}
	if n := stand(7, 7, time.Hour); n > 0 {
		t.Errorf("%d warnings where nothing is written: %v", n, said)
	}
	if n := stand(7, 20, 10*time.Minute); n > 0 {
		t.Errorf("%d warnings of a transaction that may still end: %v", n, said)
	}
	const want = "orders/3 stands at offset 7 for 15m0s, and ends at 20"
	if n := stand(7, 20, time.Hour); n != 3 || !strings.Contains(said[0].Error(), want) {
		t.Errorf("%d warnings, want 3, after 15, 30 and 60 minutes: %v", n, said)
	}
	p.pos, p.scan = 20, 20
	if n := stand(20, 30, 10*time.Minute); n > 0 {
		t.Errorf("%d warnings of the next transaction: %v", n, said)
	}
}

// commitInOpenTransaction commits an offset of the first topic's first partition, for the group, in a transaction that is open
// until end commits it.
func (ts *testSystem) commitInOpenTransaction(t testing.TB, offset int64) (end func()) {
	t.Helper()
	const id = "somebody"
	client, err := kgo.NewClient(kgo.SeedBrokers(ts.brokers...), kgo.MaxVersions(kversion.V2_8_0())) // which names topics
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr(ts.group+id), 60_000
	by := ask(t, client, init, func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = ts.group+id, by.ProducerID, by.ProducerEpoch, ts.group
	ask(t, client, add, func(r *kmsg.AddOffsetsToTxnResponse) int16 { return r.ErrorCode })
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch = ts.group+id, by.ProducerID, by.ProducerEpoch
	commit.Group = ts.group
	of := kmsg.NewTxnOffsetCommitRequestTopic()
	of.Topic = ts.topics[0]
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = offset
	of.Partitions = append(of.Partitions, p)
	commit.Topics = append(commit.Topics, of)
	ask(t, client, commit, func(r *kmsg.TxnOffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
	return func() {
		t.Helper()
		over := kmsg.NewPtrEndTxnRequest()
		over.TransactionalID, over.ProducerID, over.ProducerEpoch, over.Commit = ts.group+id, by.ProducerID, by.ProducerEpoch, true
		ask(t, client, over, func(r *kmsg.EndTxnResponse) int16 { return r.ErrorCode })
	}
}
