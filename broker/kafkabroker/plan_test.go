package kafkabroker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestPlanByAStarter: the leader makes a plan, and the broker that it asks for the topics has just started: it does not know one
// of them yet, or none of its partitions. That topic's claims go on all the same.
func TestPlanByAStarter(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(*kmsg.MetadataResponseTopic){
		"unknown": func(of *kmsg.MetadataResponseTopic) {
			of.ErrorCode, of.Partitions = kerr.UnknownTopicOrPartition.Code, nil
		},
		"no leaders":       func(of *kmsg.MetadataResponseTopic) { of.ErrorCode, of.Partitions = kerr.LeaderNotAvailable.Code, nil },
		"no partitions":    func(of *kmsg.MetadataResponseTopic) { of.Partitions = nil },
		"fewer partitions": func(of *kmsg.MetadataResponseTopic) { of.Partitions = of.Partitions[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPlanByAStarter(t, hide)
		})
	}
}

func testPlanByAStarter(t *testing.T, hide func(*kmsg.MetadataResponseTopic)) {
	ts := newTestSystem(t, 2, 2)
	ts.lease = lasting
	none := []func([]byte) []byte{}
	joins, looks := &spoiler{key: keyJoinGroup, ways: none}, &spoiler{key: keyMetadata, ways: none}
	cfg := ts.config(ts.net.link())
	cfg.plan, cfg.Poll, cfg.dial = nil, time.Hour, joins.over(looks.over(cfg.dial))
	leader := startRunner(t, cfg)
	eventually(t, "it has all", func() bool { return leader.claims() == 4 })
	joins.again(func(frame []byte) []byte {
		looks.again(lookWithout(t, ts.topics[0], hide))
		return frame
	})
	cfg = ts.config(ts.net.link())
	cfg.plan, cfg.Topics = nil, ts.topics[1:]
	other := startRunner(t, cfg)
	eventually(t, "another one has what it is to have", func() bool { return other.claims() > 0 })
	if looks.met() == 0 {
		t.Fatal("no look was answered by the broker that has just started")
	}
	leader.mu.Lock()
	defer leader.mu.Unlock()
	for _, e := range leader.events {
		if e.Kind == broker.Ended && e.Claim.Topic == ts.topics[0] {
			t.Errorf("the claim of %s/%d ended: %v", e.Claim.Topic, e.Claim.Partition, e.Err)
		}
	}
}

// lookWithout is an answer to Metadata of a broker that does not know all of a topic.
func lookWithout(t *testing.T, topic string, hide func(*kmsg.MetadataResponseTopic)) func(frame []byte) []byte {
	return func(frame []byte) []byte {
		r := kmsg.NewPtrMetadataResponse()
		r.SetVersion(12)
		if err := r.ReadFrom(frame[9:]); err != nil {
			t.Error(err)
		}
		for i := range r.Topics {
			if *r.Topics[i].Topic == topic {
				hide(&r.Topics[i])
			}
		}
		return sized(frame[4:8], r.AppendTo([]byte{0}))
	}
}
