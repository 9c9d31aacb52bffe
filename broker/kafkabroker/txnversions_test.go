package kafkabroker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// agreeOn lets the fake cluster agree on a transaction version.
func (ts *testSystem) agreeOn(t *testing.T, level int16) {
	t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	update.Feature, update.MaxVersionLevel, update.UpgradeType = transactionFeature, level, 2
	req.FeatureUpdates = append(req.FeatureUpdates, update)
	answer, err := req.RequestWith(t.Context(), ts.admin)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A txnWatch notes what transactions are made of.
type txnWatch struct {
	mu     sync.Mutex
	kinds  []string // of requests, with their versions
	begins []string // epoch and sequence of each batch
	busy   int      // so many Produce are to be told that the transaction before is being written out
}

func (w *txnWatch) see(req kmsg.Request) (kmsg.Response, error, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := req.(*kmsg.ProduceRequest); ok {
		if r.TransactionID == nil {
			return nil, nil, false
		}
		b := r.Topics[0].Partitions[0].Records
		w.begins = append(w.begins, fmt.Sprintf("%d/%d", binary.BigEndian.Uint16(b[atProducerEpoch:]),
			binary.BigEndian.Uint32(b[atSequence:])))
		if w.busy > 0 {
			w.busy--
			answer := r.ResponseKind().(*kmsg.ProduceResponse)
			at, to := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
			at.Topic, to.Partition, to.ErrorCode = r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition, int16(codeConcurrent)
			at.Partitions = append(at.Partitions, to)
			answer.Topics = append(answer.Topics, at)
			return answer, nil, true
		}
	}
	w.kinds = append(w.kinds, fmt.Sprintf("%s v%d", kmsg.NameForKey(req.Key()), req.GetVersion()))
	return nil, nil, false
}

// TestTransactionVersions: where a cluster has agreed on transaction version 2, a transaction is three exchanges, and each is
// under an epoch of its own; elsewhere five, as on all brokers since 2.5.
func TestTransactionVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		level  int16
		busy   int
		kinds  []string // of a transaction
		begins []string
	}{
		{1, 0, []string{"AddPartitionsToTxn v3", "Produce v7", "AddOffsetsToTxn v3", "TxnOffsetCommit v3", "EndTxn v3"},
			[]string{"0/1", "0/2", "0/3"}},
		{2, 0, []string{"Produce v12", "TxnOffsetCommit v5", "EndTxn v5"}, []string{"0/0", "1/0", "2/0"}},
		{2, 2, []string{"Produce v12", "TxnOffsetCommit v5", "EndTxn v5"}, []string{"0/0", "0/0", "0/0", "1/0", "2/0"}},
	} {
		t.Run(fmt.Sprintf("level %d, busy %d", c.level, c.busy), func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
			ts.agreeOn(t, c.level)
			w := &txnWatch{}
			for _, key := range []int16{keyProduce, keyAddPartitionsToTxn, keyAddOffsetsToTxn, keyTxnOffsetCommit, keyEndTxn} {
				ts.cluster.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) {
					ts.cluster.KeepControl()
					return w.see(req)
				})
			}
			cfg := ts.config(ts.net.link())
			cfg.Transactional = true
			s, err := NewSource(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
				out: make(chan broker.Message, 10)}
			r.open(t)
			// The first one comes while the group is still being made.
			for i := range 4 {
				if i == 1 {
					w.forget(c.busy)
				}
				ts.handOn(t, r, i)
			}
			for i, m := range ts.stored(t, ts.outputs) {
				if !bytes.Equal(m.Value, fmt.Append(nil, i)) {
					t.Errorf("output %d is %q", i, m.Value)
				}
			}
			all := w.withOutputs()
			if want := slices.Concat(c.kinds, c.kinds, c.kinds); !slices.Equal(all, want) {
				t.Errorf("sent %v, want %v", all, want)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			ranks := make(map[int]int) // of epochs: transactions without outputs have some, too
			for i, b := range w.begins {
				var epoch, sequence int
				fmt.Sscanf(b, "%d/%d", &epoch, &sequence)
				if _, known := ranks[epoch]; !known {
					ranks[epoch] = len(ranks)
				}
				w.begins[i] = fmt.Sprintf("%d/%d", ranks[epoch], sequence)
			}
			if !slices.Equal(w.begins, c.begins) {
				t.Errorf("batches begin at epoch/sequence %v, want %v", w.begins, c.begins)
			}
		})
	}
}

// handOn stores a message, emits with its ack its number as the output, and waits until that is stored.
func (ts *testSystem) handOn(t *testing.T, r *runner, i int) {
	t.Helper()
	ts.put(t, ts.topics[0], i, 1)
	m := <-r.out
	if err := r.s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token},
		Outs: []broker.Outgoing{{Topic: ts.outputs, Value: fmt.Append(nil, i)}}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stored", func() bool { return len(ts.stored(t, ts.outputs)) == i+1 })
}

// TestTransactionsOfOldBrokers: brokers since Kafka 2.5 have what transactions need, some of it in older versions.
func TestTransactionsOfOldBrokers(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]*kversion.Versions{
		"2.5": kversion.V2_5_0(), "2.7": kversion.V2_7_0(), "2.8": kversion.V2_8_0(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, ofOne, "transactional", kfake.MaxVersions(versions))
			s, err := NewSource(ts.config(ts.net.link()))
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
				out: make(chan broker.Message, 10)}
			r.open(t)
			for i := range 2 {
				ts.handOn(t, r, i)
			}
			eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		})
	}
}

// forget begins anew.
func (w *txnWatch) forget(busy int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds, w.begins, w.busy = nil, nil, busy
}

// withOutputs are the requests of the transactions that have outputs, one after the other.
func (w *txnWatch) withOutputs() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var one []string
	for _, kind := range w.kinds {
		one = append(one, kind)
		if !strings.HasPrefix(kind, "EndTxn") {
			continue
		}
		if slices.ContainsFunc(one, func(k string) bool { return strings.HasPrefix(k, "Produce") }) {
			all = append(all, one...)
		}
		one = nil
	}
	return all
}

// TestTransactionAnswersLackPartitions: an answer says nothing of a partition that was asked for, so nobody knows that it is part
// of the transaction, or that its batch is written. The transaction is aborted, and the next one has the output, once.
func TestTransactionAnswersLackPartitions(t *testing.T) {
	t.Parallel()
	for _, key := range []int16{keyAddPartitionsToTxn, keyProduce, keyTxnOffsetCommit} {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, ofOne, "transactional")
			ts.agreeOn(t, 1)
			x := ts.transactor(t)
			ts.cluster.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) {
				return req.ResponseKind(), nil, true
			})
			commit := func() error {
				cs := []*commitment{{partitionID: partitionID{ts.topics[0], 0}, offset: 5}}
				return x.commit(t.Context(), func() bool { return true }, map[memberID][]*commitment{{generation: -1}: cs},
					[]*broker.Outgoing{{Topic: ts.outputs, Value: []byte("made")}})
			}
			if err := commit(); !errors.Is(err, errShort) {
				t.Errorf("%v, want that the answer is malformed", err)
			}
			if err := commit(); err != nil {
				t.Error(err)
			}
			if n := len(ts.stored(t, ts.outputs)); n != 1 {
				t.Errorf("the output is stored %d times", n)
			}
		})
	}
}

// TestFeatures reads what a cluster agrees on, among fields that nobody knows.
func TestFeatures(t *testing.T) {
	answer := kmsg.NewApiVersionsResponse()
	answer.Version = featuresVersion
	answer.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 1, MaxVersion: 3}, {ApiKey: 2, MaxVersion: 3}}
	supported := kmsg.NewApiVersionsResponseSupportedFeature()
	supported.Name, supported.MaxVersion = transactionFeature, 5
	answer.SupportedFeatures = append(answer.SupportedFeatures, supported)
	answer.FinalizedFeaturesEpoch = 7
	for i, name := range []string{"other", transactionFeature} {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MaxVersionLevel, f.MinVersionLevel = name, int16(i+1), 0
		answer.FinalizedFeatures = append(answer.FinalizedFeatures, f)
	}
	b := answer.AppendTo(nil)
	levels, err := readFeatures(&reader{b: b, flexible: true})
	if err != nil || len(levels) != 2 || levels["other"] != 1 || levels[transactionFeature] != 2 {
		t.Errorf("%v, %v", levels, err)
	}
	for n := range b {
		if _, err := readFeatures(&reader{b: b[:n:n], flexible: true}); err == nil {
			t.Errorf("%d of %d bytes are taken for an answer", n, len(b))
		}
	}
	if _, err := readFeatures(&reader{b: []byte{0, 35}, flexible: true}); codeOf(err) != kafka.UnsupportedVersion {
		t.Errorf("a refusal: %v", err)
	}
}
