package kafkabroker

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestPublishInvalid: a broker takes none of a batch in which one record is invalid, as one without a key is for a topic that is
// compacted. That one alone is refused, whoever shares its batch, and the others are stored in their order.
func TestPublishInvalid(t *testing.T) {
	t.Parallel()
	setup := brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}
	for name, e := range keylessErrors {
		t.Run(name, func(t *testing.T) {
			ts := fakeSystem(t, setup, "sticky")
			ts.refuseKeyless(ts.group+"-compacted", e)
			testPublishInvalid(t, ts, e == kerr.InvalidRecord)
		})
	}
	t.Run("real", func(t *testing.T) {
		ts := realSystem(t, setup, "sticky")
		testPublishInvalid(t, ts, true)
	})
}

// keylessErrors are what brokers answer to records without a key for a topic that is compacted: Kafka 2.3 has no word of its own
// for that.
var keylessErrors = map[string]*kerr.Error{"fake": kerr.InvalidRecord, "fake of 2.3": kerr.CorruptMessage}

// refuseKeyless has the cluster refuse batches as if a topic were compacted.
func (ts *testSystem) refuseKeyless(topic string, e *kerr.Error) {
	ts.onProduce(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		refused := false
		r := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				if rp.Partition = p.Partition; t.Topic == topic && hasKeyless(p.Records) {
					rp.ErrorCode, rp.BaseOffset, refused = e.Code, -1, true
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
		if !refused {
			return nil
		}
		return r
	})
}

func hasKeyless(batch []byte) bool {
	d := newDecoder(batch, 0, maxOffset, false, nil, 1<<20)
	for r := (record{}); ; {
		if more, _ := d.next(&r); !more {
			return false
		}
		if r.key == nil {
			return true
		}
	}
}

// testPublishInvalid: told says whether the broker's answer says that it is for good.
func testPublishInvalid(t *testing.T, ts *testSystem, told bool) {
	compacted := ts.group + "-compacted"
	createTopic(t, ts.admin, compacted, 1, "cleanup.policy", "compact")
	t.Cleanup(func() { deleteTopic(t, ts.admin, compacted) })
	p := ts.publisher(t)
	defer func() { _ = p.Close(context.Background()) }()
	var ms []broker.Outgoing
	const bad = 2
	for _, v := range []string{"a", "b", "c", "d", "e"} {
		ms = append(ms, broker.Outgoing{Topic: compacted, Key: []byte(v), Value: []byte(v)})
	}
	ms[bad].Key = nil
	err := p.Publish(context.Background(), ms)
	var pe *broker.PublishError
	if !errors.As(err, &pe) {
		t.Fatalf("Publish returned %v, want one of the messages refused", err)
	}
	for i, err := range pe.Errs {
		if errors.Is(err, broker.ErrRefused) != (i == bad && told) || (err != nil) != (i == bad) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	var got []string
	for _, m := range ts.stored(t, compacted) {
		got = append(got, string(m.Value))
	}
	if want := []string{"a", "b", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("stored are %q, want %q", got, want)
	}
}
