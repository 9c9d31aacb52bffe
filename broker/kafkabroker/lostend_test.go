package kafkabroker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// onEachVersion runs a test of transactions with both versions of them.
func onEachVersion(t *testing.T, test func(t *testing.T, ts *testSystem)) {
	for _, level := range []int16{1, 2} {
		t.Run(fmt.Sprint("version ", level), func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, ofOne, "transactional")
			ts.agreeOn(t, level)
			test(t, ts)
		})
	}
}

var ofOne = brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}

// TestEndHiddenByAStranger: the end of a transaction gets no answer, and before we can ask, somebody else has committed another
// offset of its partition, as a member does that has not heard yet that its topic was made anew. The committed offset says
// nothing of our transaction any more; its outputs are written once nevertheless.
func TestEndHiddenByAStranger(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, ts *testSystem) {
		testLostEnd(t, ts, true, func() { ts.commitInOpenTransaction(t, 0)() })
	}
	onEachVersion(t, test)
	t.Run("real", func(t *testing.T) { test(t, realSystem(t, ofOne, "transactional")) })
}

// TestEndRefused: when the end of a transaction is asked for again, the coordinator refuses it, as after the transaction's
// timeout. What became of it is read, and the answers to that get lost, too.
func TestEndRefused(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"committed": true, "aborted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachVersion(t, func(t *testing.T, ts *testSystem) {
				testLostEnd(t, ts, arrives, func() {
					ts.refuseEnds()
					ts.net.breakAnswers(keyOffsetFetch, 2)
				})
			})
		})
	}
}

// refuseEnds has the coordinator refuse the end that is asked for next, as often as it is.
func (ts *testSystem) refuseEnds() {
	var first *kmsg.EndTxnRequest
	ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.ProducerFenced, Count: 1 << 30, TopLevel: true,
		When: func(req kmsg.Request) bool {
			r := req.(*kmsg.EndTxnRequest)
			if first == nil {
				first = r
			}
			return r.ProducerID == first.ProducerID && r.ProducerEpoch == first.ProducerEpoch
		}})
}

// TestEndUnansweredAndStuck: the end of a transaction gets no answer, and cannot be written to a topic that the transaction had
// outputs to, for fewer replicas are in sync there than it wants: its coordinator begins no other one under that id. What became
// of it is found out all the same, all else goes on under another id, and a Warning names the topic.
func TestEndUnansweredAndStuck(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"committed": true, "aborted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachVersion(t, func(t *testing.T, ts *testSystem) {
				r := testLostEnd(t, ts, arrives, func() { ts.stickEnd(arrives) })
				if _, told := r.event(broker.Warning, "short-of-replicas"); !told {
					t.Error("no Warning names the topic")
				}
			})
		})
	}
}

// stickEnd has the coordinator say of the id whose end is asked for next what it says where that end is decided and cannot be
// written.
func (ts *testSystem) stickEnd(committed bool) {
	var stuck atomic.Pointer[string]
	var cut atomic.Bool
	ts.cluster.ControlKey(keyEndTxn, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		id := req.(*kmsg.EndTxnRequest).TransactionalID
		if stuck.CompareAndSwap(nil, &id); *stuck.Load() != id {
			return nil, nil, false
		}
		r := req.ResponseKind().(*kmsg.EndTxnResponse)
		if r.ErrorCode = kerr.InvalidTxnState.Code; committed {
			r.ErrorCode = kerr.ConcurrentTransactions.Code
		}
		return r, nil, true
	})
	ts.cluster.ControlKey(keyInitProducerID, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		of, id := stuck.Load(), req.(*kmsg.InitProducerIDRequest).TransactionalID
		if of == nil || id == nil || *id != *of {
			return nil, nil, false
		}
		r := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		r.ErrorCode = kerr.ConcurrentTransactions.Code
		return r, nil, true
	})
	ts.cluster.ControlKey(keyDescribeTransactions, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		r := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		state := kmsg.NewDescribeTransactionsResponseTransactionState()
		state.TransactionalID = req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs[0]
		if state.State = "PrepareAbort"; committed {
			state.State = "PrepareCommit"
		}
		of := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
		of.Topic, of.Partitions = "short-of-replicas", []int32{0}
		state.Topics = append(state.Topics, of)
		r.TransactionStates = append(r.TransactionStates, state)
		cut.Store(true)
		return r, nil, true
	})
	ts.cluster.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if cut.CompareAndSwap(true, false) { // the first look at what is committed fails, once
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
}

// testLostEnd has the end of the second of three transactions get no answer. It is carried out, or not; then comes meanwhile, and
// then the end may be asked for again. Each output is to be there once.
func testLostEnd(t *testing.T, ts *testSystem, arrives bool, meanwhile func()) *runner {
	s, err := NewSource(ts.config(ts.net.link()))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 10)}
	r.open(t)
	emit := func(i int) {
		ts.put(t, ts.topics[0], i, 1)
		m := <-r.out
		if err := s.AckEmitting(m.Claim, []broker.Emission{{Tokens: []uint64{m.Token},
			Outs: []broker.Outgoing{{Topic: ts.outputs, Value: fmt.Append(nil, i)}}}}); err != nil {
			t.Fatal(err)
		}
	}
	emit(0)
	eventually(t, "the first output is stored", func() bool { return len(ts.stored(t, ts.outputs)) == 1 })
	ends := ts.net.sent(keyEndTxn)
	ts.net.loseEnd(arrives)
	emit(1)
	if arrives {
		eventually(t, "its transaction is carried out", func() bool { return len(ts.stored(t, ts.outputs)) == 2 })
	} else {
		eventually(t, "its end is asked for again", func() bool { return ts.net.sent(keyEndTxn) > ends+2 })
	}
	meanwhile()
	ts.net.foundEnd()
	emit(2)
	eventually(t, "the third output is stored", func() bool { return len(ts.stored(t, ts.outputs)) >= 3 })
	for i, m := range ts.stored(t, ts.outputs) {
		if want := fmt.Sprint(i); string(m.Value) != want {
			t.Errorf("output %s stands where %s is to be", m.Value, want)
		}
	}
	return r
}
