package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/consumer"
)

// TestStuckTransaction: a topic of outputs has fewer replicas in sync than it wants. Its broker takes neither outputs nor the end
// of their transaction, and the coordinator begins no other one under that transactional id. The outputs to other topics are
// stored all the same, a Warning names that topic, and its outputs follow when it is well, each once and in order. Where that is
// not possible, for the coordinator does not say what the transaction waits for, it is in the group's offsets, or we may have no
// other id, all goes on when the topic is well.
func TestStuckTransaction(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]lack{
		"other topics go on": {others: true},
		"given up":           {others: true, beside: true},
		"not described":      {describe: kerr.TransactionalIDAuthorizationFailed.Code},
		"offsets, too":       {offsets: true},
		"no other id":        {onlyID: true},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); testStuckTransaction(t, how) })
	}
}

// A lack is what a topic with too few replicas comes with.
type lack struct {
	others   bool  // others are expected to go on
	beside   bool  // another topic is named, too, which has taken the end
	describe int16 // what DescribeTransactions answers
	offsets  bool  // of the group cannot be written, either
	onlyID   bool  // others are refused
}

func testStuckTransaction(t *testing.T, how lack) {
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "transactional")
	short := ts.outputs + "-short"
	createTopic(t, ts.admin, short, 1)
	heal := ts.lackReplicas(short, how)
	values := ts.put(t, ts.topics[0], 0, 40)
	var want, late []string
	for i, v := range values {
		if i%10 == 3 {
			late = append(late, v)
		} else {
			want = append(want, v)
		}
	}
	told, kind := make(chan string, 1), broker.Down
	if how.others {
		kind = broker.Warning
	}
	_, stop := ts.runConsumer(t, ts.net.link(), consumer.Config{
		Order: consumer.OrderPartition,
		Observers: []consumer.Observer{func(e consumer.Event) {
			s, ok := e.(consumer.SourceEvent)
			if ok && s.Kind == kind && codeOf(s.Err) != kafka.NotEnoughReplicas {
				select {
				case told <- s.Err.Error():
				default:
				}
			}
		}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			to := ts.outputs
			if slices.Contains(late, string(m.Value)) {
				to = short
			}
			return consumer.Emit(ctx, broker.Outgoing{Topic: to, Key: m.Key, Value: m.Value})
		},
	})
	text := <-told
	if how.others {
		eventually(t, "what goes to another topic is stored", func() bool { return len(ts.stored(t, ts.outputs)) == len(want) })
	}
	if how.describe == 0 && !strings.Contains(text, short) {
		t.Errorf("told is %q, want the name of %s", text, short)
	}
	heal()
	eventually(t, "all is committed", func() bool { return ts.progress(t, ts.topics[0])[0].committed == int64(len(values)) })
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	for topic, want := range map[string][]string{ts.outputs: want, short: late} {
		var got []string
		for _, m := range ts.stored(t, topic) {
			got = append(got, string(m.Value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("in %s is %q, want %q", topic, got, want)
		}
	}
}

// TestStuckTopicsAskedTogether: a transaction cannot be ended in many topics. Commits wait for what its coordinator says of them,
// which is asked once, and not for each topic.
func TestStuckTopicsAskedTogether(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1}, "transactional")
	x := ts.transactor(t)
	left := []string{"topic-3", "topic-5"}
	var asked atomic.Int32
	ts.cluster.ControlKey(keyDescribeTransactions, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		asked.Add(1)
		r := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		state := kmsg.NewDescribeTransactionsResponseTransactionState()
		state.TransactionalID, state.State = req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs[0], "PrepareAbort"
		for _, topic := range left {
			of := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			of.Topic, of.Partitions = topic, []int32{0}
			state.Topics = append(state.Topics, of)
		}
		r.TransactionStates = append(r.TransactionStates, state)
		return r, nil, true
	})
	for i := range 200 {
		x.dest.stuck = append(x.dest.stuck, &stuckTxn{at: x.to, topic: fmt.Sprint("topic-", i), until: time.Now().Add(stuckMost)})
	}
	x.release(t.Context())
	if n := asked.Load(); n != 1 {
		t.Errorf("the coordinator was asked %d times for 200 topics, want once", n)
	}
	var still []string
	for _, s := range x.dest.stuck {
		still = append(still, s.topic)
	}
	if !slices.Equal(still, left) {
		t.Errorf("%q wait, want %q", still, left)
	}
}

// lackReplicas makes the fake do what Kafka does where a topic has too few replicas in sync, until heal.
func (ts *testSystem) lackReplicas(topic string, how lack) (heal func()) {
	var stuck atomic.Pointer[string]
	var well atomic.Bool
	is := func(id *string) bool {
		of := stuck.Load()
		return of != nil && id != nil && *of == *id && !well.Load()
	}
	ts.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		if well.Load() || !slices.ContainsFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == topic }) {
			return nil
		}
		stuck.Store(req.TransactionID)
		r := refuse(req, kerr.NotEnoughReplicas)
		for _, t := range r.Topics {
			for i := range t.Partitions {
				if t.Topic != topic { // it would be aborted with the rest
					t.Partitions[i].ErrorCode, t.Partitions[i].BaseOffset = 0, 0
				}
			}
		}
		return r
	})
	ts.cluster.ControlKey(keyInitProducerID, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		id := req.(*kmsg.InitProducerIDRequest).TransactionalID
		r := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		switch {
		case is(id):
			r.ErrorCode = kerr.ConcurrentTransactions.Code
		case how.onlyID && id != nil && stuck.Load() != nil && *id != *stuck.Load():
			r.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		default:
			return nil, nil, false
		}
		return r, nil, true
	})
	ts.cluster.ControlKey(keyDescribeTransactions, func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		id := req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs[0]
		r := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		state := kmsg.NewDescribeTransactionsResponseTransactionState()
		state.TransactionalID, state.State, state.ErrorCode = id, "CompleteAbort", how.describe
		add := func(topic string) {
			of := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			of.Topic, of.Partitions = topic, []int32{0}
			state.State, state.Topics = "PrepareAbort", append(state.Topics, of)
		}
		if is(&id) && how.describe == 0 {
			add(topic)
			if how.beside {
				add(ts.outputs)
			}
			if how.offsets {
				add(groupsTopic)
			}
		}
		r.TransactionStates = append(r.TransactionStates, state)
		return r, nil, true
	})
	return func() { well.Store(true) }
}

// transactor is one without a source.
func (ts *testSystem) transactor(t *testing.T) *transactor {
	t.Helper()
	cfg := ts.config(ts.net.link()).withDefaults()
	c, err := cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.transport.CloseIdleConnections)
	return newTransactor(&coordinator{c: c, group: cfg.Group}, &cfg)
}
