package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestPublishTooLarge: what is too large is refused for good, with its size and the limit, without a broker and without a name of
// a Go field.
func TestPublishTooLarge(t *testing.T) {
	p, err := NewPublisher(PublisherConfig{MaxMessageBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background()) }()
	err = p.Publish(context.Background(), []broker.Outgoing{{Topic: "t", Value: make([]byte, 101)}})
	if !errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), "message of 101 bytes, the limit is 100") {
		t.Errorf("Publish returned %v, want ErrRefused, 101 and 100", err)
	}
}

// TestPublishToReserved: Kafka's own topics are refused, whoever names them, without a broker, and what is beside them in a batch
// is not.
func TestPublishToReserved(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	err := p.Publish(context.Background(), []broker.Outgoing{{Topic: "__consumer_offsets", Value: []byte("a")},
		{Topic: ts.topics[0], Value: []byte("b")}, {Topic: "__transaction_state"}})
	var pe *broker.PublishError
	if !errors.As(err, &pe) || pe.Errs[1] != nil {
		t.Fatalf("Publish returned %v, want the first and the last refused", err)
	}
	for _, i := range []int{0, 2} {
		if !errors.Is(pe.Errs[i], broker.ErrReserved) || !errors.Is(pe.Errs[i], broker.ErrRefused) {
			t.Errorf("message %d: %v", i, pe.Errs[i])
		}
	}
	if n := ts.cluster.PartitionInfo(ts.topics[0], 0).HighWatermark; n != 1 {
		t.Errorf("%d messages are stored beside them, want 1", n)
	}
}

// TestPublishToNewTopic: a topic that is made while a publish is under way takes it; one that is not made is refused for good.
func TestPublishToNewTopic(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	time.AfterFunc(200*time.Millisecond, func() { _ = ts.cluster.CreateTopic("late", 1, nil) })
	ms := []broker.Outgoing{{Topic: "late", Value: []byte("a")}, {Topic: ts.topics[0], Value: []byte("b")},
		{Topic: "never", Value: []byte("c")}, {Topic: "late", Value: []byte("d")}}
	err := p.Publish(context.Background(), ms)
	var pe *broker.PublishError
	if !errors.As(err, &pe) || pe.Errs[0] != nil || pe.Errs[1] != nil || !errors.Is(pe.Errs[2], broker.ErrRefused) ||
		pe.Errs[3] != nil {
		t.Errorf("Publish returned %v, want only the third one refused", err)
	} else if errors.Is(pe.Errs[2], broker.ErrNoTopic) && strings.Contains(pe.Errs[2].Error(), "for good") {
		t.Errorf("whoever makes the topic cures it, and the error says: %v", pe.Errs[2])
	}
	if n := ts.cluster.PartitionInfo("late", 0).HighWatermark; n != 2 {
		t.Errorf("%d messages are stored, want 2", n)
	}
	if n := ts.cluster.PartitionInfo(ts.topics[0], 0).HighWatermark; n != 1 {
		t.Errorf("%d messages are stored beside them, want 1", n)
	}
}

// answerProduce lets the next n requests be answered with an error and an offset, and nothing be stored. It counts them.
func (ts *testSystem) answerProduce(n int32, e *kerr.Error, base int64) *atomic.Int32 {
	var met atomic.Int32
	ts.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if met.Add(1) > n {
			return nil, nil, false
		}
		if met.Load() < n {
			ts.cluster.KeepControl()
		}
		r := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, e.Code, base
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
		return r, nil, true
	})
	return &met
}

// TestPublishToNewLeader: where the partition has no leader yet, or another one, and nothing was stored, Publish goes on by
// itself, and each message is stored once. Where a leader has stored it and could not keep it to the end, nobody knows what
// became of it: it is not sent again, and is told as unconfirmed.
func TestPublishToNewLeader(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition} {
		for _, stored := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", e.Message, stored), func(t *testing.T) {
				t.Parallel()
				ts := newTestSystem(t, 1, 1)
				p := ts.publisherFor(t, patience)
				defer func() { _ = p.Close(context.Background()) }()
				base := int64(-1)
				if stored {
					base = 5
				}
				met := ts.answerProduce(3, e, base)
				ms := []broker.Outgoing{{Topic: ts.topics[0], Value: []byte("a")}, {Topic: ts.topics[0], Value: []byte("b")}}
				err := p.Publish(context.Background(), ms)
				end := ts.cluster.PartitionInfo(ts.topics[0], 0).HighWatermark
				if !stored {
					if err != nil || end != 2 || met.Load() < 3 {
						t.Errorf("Publish returned %v after %d requests, %d messages are stored, want 2", err, met.Load(), end)
					}
					return
				}
				var pe *broker.PublishError
				if !errors.As(err, &pe) || pe.Errs[0] == nil || pe.Errs[1] == nil || errors.Is(err, broker.ErrRefused) || met.Load() != 1 {
					t.Errorf("Publish returned %v after %d requests, want both unconfirmed after one", err, met.Load())
				}
			})
		}
	}
}

// TestPublishWithoutLeader: a partition that has no leader for longer than Publish tries on is not refused for good.
func TestPublishWithoutLeader(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	ts.answerProduce(1<<30, kerr.NotLeaderForPartition, -1)
	began := time.Now()
	err := p.Publish(context.Background(), []broker.Outgoing{{Topic: ts.topics[0], Value: []byte("a")}})
	if codeOf(err) != kafka.NotLeaderForPartition || errors.Is(err, broker.ErrRefused) {
		t.Errorf("Publish returned %v after %v, want that it is unconfirmed", err, time.Since(began))
	}
}

func TestUnstored(t *testing.T) {
	for _, tc := range []struct {
		err  error
		base int64
		want bool
	}{
		{kafka.NotLeaderForPartition, -1, true},
		{kafka.LeaderNotAvailable, -1, true},
		{fmt.Errorf("writing: %w", kafka.UnknownTopicOrPartition), -1, true},
		{kafka.BrokerNotAvailable, -1, true}, // the request was sent to nobody
		{kafka.NotLeaderForPartition, 0, false},
		{kafka.NotEnoughReplicasAfterAppend, -1, false},
		{kafka.RequestTimedOut, -1, false},
		{kafka.MessageSizeTooLarge, -1, false},
		{context.DeadlineExceeded, -1, false},
		{nil, -1, false},
	} {
		if got := unstored(fate{tc.err, tc.base}); got != tc.want {
			t.Errorf("%v with offset %d: %v", tc.err, tc.base, got)
		}
	}
}

// TestPublishToNewTopicReal publishes on Apache Kafka to topics that were made a moment ago, by publishers that are new too.
func TestPublishToNewTopicReal(t *testing.T) {
	admin, brokers, topic := realKafka(t, 1)
	const times, partitions = 10, 3
	for i := range times {
		late := fmt.Sprintf("%s-late-%d", topic, i)
		p, err := NewPublisher(PublisherConfig{Connection: Connection{Brokers: brokers}})
		if err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrCreateTopicsRequest()
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = late, partitions, -1
		req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
		ask(t, admin, req, func(r *kmsg.CreateTopicsResponse) int16 { return r.Topics[0].ErrorCode })
		var ms []broker.Outgoing
		for j := range 4 * partitions {
			ms = append(ms, broker.Outgoing{Topic: late, Value: []byte(fmt.Sprint(j))})
		}
		if err := p.Publish(context.Background(), ms); err != nil {
			t.Errorf("topic %d: %v", i, err)
		}
		var stored int64
		for _, end := range listOffsets(t, admin, late, partitions, timeEnd) {
			stored += end
		}
		if stored != int64(len(ms)) {
			t.Errorf("topic %d: %d messages are stored, want %d", i, stored, len(ms))
		}
		_ = p.Close(context.Background())
		deleteTopic(t, admin, late)
	}
}

// TestPublishNamesTheTopic: whether Publish gave up itself or its caller did, each message's error names the topic and that it
// does not exist. It said "publishing: context deadline exceeded".
func TestPublishNamesTheTopic(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	for name, timeout := range map[string]time.Duration{"the caller gave up": 500 * time.Millisecond, "Publish gave up": patience} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := ts.publisher(t)
			defer func() { _ = p.Close(context.Background()) }()
			var pe *broker.PublishError
			// on a busy machine it takes longer than the caller waits
			eventually(t, "the broker could be asked in that time", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				return errors.As(p.Publish(ctx, []broker.Outgoing{{Topic: "never", Value: []byte("a")},
					{Topic: "nowhere", Value: []byte("a")}}), &pe) && codeOf(pe) == kafka.UnknownTopicOrPartition
			})
			for i, topic := range []string{"never", "nowhere"} {
				if e := pe.Errs[i]; e == nil || !strings.Contains(e.Error(), topic) || !strings.Contains(e.Error(), "does not exist") {
					t.Errorf("%s: %v", topic, e)
				}
				refused, missing := errors.Is(pe.Errs[i], broker.ErrRefused), errors.Is(pe.Errs[i], broker.ErrNoTopic)
				if refused != (timeout == patience) || missing != refused {
					t.Errorf("%s: refused is %v, missing is %v", topic, refused, missing)
				}
			}
		})
	}
}

// TestPublishEndsWithItsContext: a publish to a topic of which it is known that there is none ends with its context. It tried on
// without a pause, with a core of its own, until that had to be asked for again.
func TestPublishEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still while something spins
		p, err := NewPublisher(PublisherConfig{Connection: Connection{Brokers: []string{"nobody:9092"}}})
		if err != nil {
			t.Fatal(err)
		}
		never := &written{topic: topic{name: "never", err: kafka.UnknownTopicOrPartition}, at: time.Now()}
		p.leaders.known.Store(&map[string]*written{"never": never})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var pe *broker.PublishError
		err = p.Publish(&impatient{Context: ctx, t: t}, []broker.Outgoing{{Topic: "never", Value: []byte("a")}})
		if !errors.As(err, &pe) || !errors.Is(pe.Errs[0], context.Canceled) || errors.Is(err, broker.ErrRefused) {
			t.Errorf("Publish returned %v, want the message's error to be the context's", err)
		}
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// impatient is a context that fails its test where it is asked again and again whether it has ended.
type impatient struct {
	context.Context
	t     *testing.T
	asked int
}

// Done implements context.Context.
func (c *impatient) Done() <-chan struct{} {
	if c.asked++; c.asked > 1000 {
		c.t.Fatal("its context has ended, and Publish goes on")
	}
	return c.Context.Done()
}
