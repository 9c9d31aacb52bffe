package kafkabroker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestTopicOfOthersUnknown: the leader of a group makes its plan at a moment when brokers do not tell it of a topic that only
// another member subscribes to. That one sees nothing new in its topic, for it was told of it all the while. It gets its
// partitions as soon as brokers tell the leader, too.
func TestTopicOfOthersUnknown(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "range"} {
		for _, e := range []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.TopicAuthorizationFailed} {
			t.Run(balancer+"/"+e.Message, func(t *testing.T) {
				t.Parallel()
				testTopicOfOthersUnknown(t, balancer, e)
			})
		}
	}
}

func testTopicOfOthersUnknown(t *testing.T, balancer string, e *kerr.Error) {
	ts := newTestSystem(t, 1, 2)
	ts.balancer = balancer
	start := func(topic string) *runner {
		cfg := ts.config(ts.net.link())
		cfg.Topics, cfg.plan, cfg.SessionTimeout = []string{topic}, nil, patience
		return startRunner(t, cfg)
	}
	leader := start(ts.topics[0])
	want := ts.put(t, ts.topics[0], 0, 1)
	eventually(t, "the first has begun", func() bool { return leader.has(want) })
	// Of two topics asks who makes a plan for both members.
	h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: ts.topics[1], Err: e, Count: -1,
		When: func(req kmsg.Request) bool { return len(req.(*kmsg.MetadataRequest).Topics) > 1 }})
	other := start(ts.topics[1])
	eventually(t, "the group has its plan", func() bool {
		info := ts.cluster.GroupInfo(testGroup)
		return h.Hits() > 0 && info != nil && len(info.Members) == 2 && info.State == "Stable"
	})
	if e == kerr.TopicAuthorizationFailed {
		leader.told(t, broker.Warning, ts.topics[1])
	}
	h.Remove()
	want = ts.put(t, ts.topics[1], 0, 1)
	eventually(t, "the other has its partition", func() bool { return other.has(want) })
}
