package kafkabroker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker/brokertest"
)

func startCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(50 * time.Millisecond)},
		opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newTestSystem(t testing.TB, parts int, topics int, opts ...kfake.Opt) *testSystem {
	ts := startFake(t, brokertest.Setup{Topics: topics, Partitions: parts}, "sticky", opts...)
	ts.lease = time.Second // a busy machine stands still for longer than the suite's lease
	return ts
}

// fakeSystem is a system on a cluster of its own, in this process.
func fakeSystem(t testing.TB, s brokertest.Setup, balancer string) *testSystem {
	return startFake(t, s, balancer)
}

func startFake(t testing.TB, s brokertest.Setup, balancer string, opts ...kfake.Opt) *testSystem {
	t.Helper()
	ts := plainTestSystem(s, balancer, testLease)
	ts.group = testGroup
	for i := range s.Topics {
		ts.topics = append(ts.topics, fmt.Sprintf("topic%d", i))
	}
	ts.outputs = "outputs"
	ts.cluster = startCluster(t, append(opts, kfake.SeedTopics(ts.parts, ts.topics...), kfake.SeedTopics(1, ts.outputs))...)
	ts.brokers = ts.cluster.ListenAddrs()
	ts.connect(t)
	ts.actAs43()
	return ts
}

// fakeProgress asks the cluster itself, beside the protocol: no fault is met, and nothing is in flight.
func (ts *testSystem) fakeProgress(topic string) (ps []progressOf) {
	info := ts.cluster.GroupInfo(ts.group)
	for _, pi := range ts.cluster.PartitionInfos(topic) {
		p := progressOf{start: pi.LogStartOffset, end: pi.HighWatermark, committed: -1}
		if info != nil {
			if c, ok := info.Commits[topic][pi.Partition]; ok {
				p.committed, p.metadata = c.Offset, c.Metadata
			}
		}
		ps = append(ps, p)
	}
	return ps
}
