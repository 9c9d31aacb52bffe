package kafkabroker

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestMadeAgainSmaller: a topic is made anew with fewer partitions than it had. The claims of those that are no more end, and so
// does Close: the broker takes no last commit of them, as if the topic were gone.
func TestMadeAgainSmaller(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 3, testMadeAgainSmaller)
	setup := brokertest.Setup{Topics: 1, Partitions: 3}
	t.Run("transactional/fake", func(t *testing.T) { testMadeAgainSmaller(t, fakeSystem(t, setup, "transactional")) })
	t.Run("transactional/real", func(t *testing.T) { testMadeAgainSmaller(t, realSystem(t, setup, "transactional")) })
}

func testMadeAgainSmaller(t *testing.T, ts *testSystem) {
	ts.lease = lasting
	r := startRunner(t, ts.config(ts.net.link()))
	old := ts.put(t, ts.topics[0], 0, 9)
	eventually(t, "the old messages came", func() bool { return r.has(old) })
	ts.parts = 1
	ts.recreate(t, ts.topics[0])
	want := ts.put(t, ts.topics[0], 9, 9)
	eventually(t, "the new messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	eventually(t, "the claims of what is no more have ended", func() bool { return r.claims() == 1 })
	r.close()
}

// claims is how many claims it has.
func (r *runner) claims() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		switch e.Kind {
		case broker.Assigned:
			n++
		case broker.Ended:
			n--
		}
	}
	return n
}

// TestMadeAgainUncommitted: a topic is made anew while acks of its messages are not committed. They do not come again, so they
// are not told as Unconfirmed.
func TestMadeAgainUncommitted(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 3, func(t *testing.T, ts *testSystem) {
		ts.lease = lasting
		cfg := ts.config(ts.net.link())
		cfg.CommitInterval, cfg.CommitMessages = 10*patience, 1_000_000
		r := startRunner(t, cfg)
		eventually(t, "all partitions begin", func() bool { return r.claims() == 3 })
		old := ts.put(t, ts.topics[0], 0, 9)
		eventually(t, "the old messages came", func() bool { return r.has(old) })
		ts.parts = 1
		ts.recreate(t, ts.topics[0])
		want := ts.put(t, ts.topics[0], 9, 9)
		eventually(t, "the new messages came", func() bool { return r.has(want) })
		eventually(t, "the claims of what is no more have ended", func() bool { return r.claims() == 1 })
		r.close()
		if e, said := r.event(broker.Unconfirmed, ""); said {
			t.Errorf("%d acks of %s/%d were told as Unconfirmed: %v", e.N, e.Claim.Topic, e.Claim.Partition, e.Err)
		}
	})
}

// TestMadeAgainLatest: a topic is deleted, and made anew after its claims have ended, when the group has forgotten what was
// committed of it. All of it comes, whatever says where partitions begin of which nothing is committed.
func TestMadeAgainLatest(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) {
		ts.lease = lasting
		cfg := ts.config(ts.net.link())
		cfg.Start.At, cfg.Poll = "latest", time.Second
		r := startRunner(t, cfg)
		eventually(t, "it begins", func() bool { return r.claims() == 1 })
		old := ts.put(t, ts.topics[0], 0, 9)
		eventually(t, "the old messages came", func() bool { return r.has(old) })
		deleteTopic(t, ts.admin, ts.topics[0])
		eventually(t, "its claim ends", func() bool { return r.claims() == 0 })
		createTopic(t, ts.admin, ts.topics[0], 1)
		ts.admin.PurgeTopicsFromClient(ts.topics[0])
		want := ts.put(t, ts.topics[0], 9, 9)
		eventually(t, "it begins again", func() bool { return r.claims() == 1 })
		want = append(want, ts.put(t, ts.topics[0], 18, 9)...)
		eventually(t, "all of the new topic came", func() bool { return r.has(want) })
		r.told(t, broker.Gap, errRecreated.Error())
	})
}

// TestTopicsComeAndGo: of topics that are deleted, under names that never come again, nothing is kept in memory.
func TestTopicsComeAndGo(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) {
		ts.lease = lasting
		cfg := ts.config(ts.net.link())
		cfg.Topics, cfg.Pattern = nil, regexp.QuoteMeta(ts.topics[0])+".*"
		r := startRunner(t, cfg)
		const n = 5
		for i := range n {
			name := fmt.Sprintf("%s-%d", ts.topics[0], i)
			createTopic(t, ts.admin, name, 1)
			eventually(t, "it begins", func() bool { return r.claims() == 2 })
			want := ts.put(t, name, 0, 3)
			eventually(t, "its messages came", func() bool { return r.has(want) })
			eventually(t, "they are committed", func() bool { return len(r.s.Floors()) == 2 })
			deleteTopic(t, ts.admin, name)
			eventually(t, "its claim ends", func() bool { return r.claims() == 1 })
			eventually(t, "its floor is forgotten", func() bool { return len(r.s.Floors()) == 1 })
		}
		r.close()
		if n := r.remembers(); n > 2 {
			t.Errorf("%d topics are remembered, want the one that is there, and perhaps the last that was", n)
		}
	})
}

// remembers is how many logs or topics it has most of anything of, once it is closed.
func (r *runner) remembers() int {
	n := max(len(r.s.h.stale), len(r.s.h.roster.resets), len(r.s.h.claims.books.logs))
	if m, ok := r.s.m.(*modern); ok {
		n = max(n, len(m.m.names))
	}
	return n
}

// TestPartitionAddedLatest: a topic gets another partition, and messages are written to it before anybody has found it. They
// come, although a partition of which nothing is committed begins at its end: that is for what was written before the group
// began.
func TestPartitionAddedLatest(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) {
		ts.lease = lasting
		cfg := ts.config(ts.net.link())
		cfg.Start.At, cfg.Poll = "latest", 2*time.Second
		old := ts.put(t, ts.topics[0], 0, 3)
		r := startRunner(t, cfg)
		eventually(t, "it begins", func() bool { return r.claims() == 1 })
		ts.addPartitions(t, ts.topics[0], 2)
		want := []string{ts.putInto(t, ts.topics[0], 1, "early")}
		eventually(t, "the new one begins", func() bool { return r.claims() == 2 })
		want = append(want, ts.putInto(t, ts.topics[0], 1, "late"))
		eventually(t, "what was written since came", func() bool { return r.has(want[1:]) })
		if !r.has(want) {
			t.Error("what was written to the new partition before it was found did not come")
		}
		if r.has(old[:1]) {
			t.Error("what was written before the group began came")
		}
	})
}

// TestPartitionAddedBetweenProcesses: the same, while no process runs: who starts later knows by what is committed that the group
// had begun before. So it does of a partition that was there then, and of which what was committed is gone.
func TestPartitionAddedBetweenProcesses(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 2, func(t *testing.T, ts *testSystem) {
		ts.lease = lasting
		run := func(claims int) (r *runner) {
			cfg := ts.config(ts.net.link())
			cfg.Start.At, cfg.Topics = "latest", ts.topics[:1]
			r = startRunner(t, cfg)
			eventually(t, "it begins", func() bool { return r.claims() == claims })
			return r
		}
		old := []string{ts.putInto(t, ts.topics[0], 0, "old0"), ts.putInto(t, ts.topics[0], 1, "old1")}
		run(2).close()
		for n := int32(3); n < 6; n++ { // each process hands on what it was told
			ts.addPartitions(t, ts.topics[0], n)
			early := ts.putInto(t, ts.topics[0], n-1, fmt.Sprint("early", n))
			r := run(int(n))
			eventually(t, "what was written to the new partition came", func() bool { return r.has([]string{early}) })
			r.close()
			if r.has(old[:1]) || r.has(old[1:]) {
				t.Error("what was written before the group began came")
			}
		}
		forget := kadm.TopicsSet{}
		forget.Add(ts.topics[0], 1)
		if _, err := kadm.NewClient(ts.admin).DeleteOffsets(t.Context(), ts.group, forget); err != nil {
			t.Fatal(err)
		}
		r := run(5)
		want := []string{ts.putInto(t, ts.topics[0], 1, "new")}
		eventually(t, "what came later came", func() bool { return r.has(want) })
		if r.has(old[:1]) || r.has(old[1:]) {
			t.Error("of a partition that was there the group began at the beginning")
		}
	})
}

// addPartitions lets a topic have so many partitions.
func (ts *testSystem) addPartitions(t testing.TB, topic string, n int32) {
	t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, n
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	ask(t, ts.admin, req, func(r *kmsg.CreatePartitionsResponse) int16 { return r.Topics[0].ErrorCode })
}

// putInto produces a message to a partition that may be new to the cluster.
func (ts *testSystem) putInto(t testing.TB, topic string, no int32, value string) string {
	t.Helper()
	eventually(t, "the partition can be written", func() bool {
		ts.admin.ForceMetadataRefresh()
		return ts.admin.ProduceSync(context.Background(),
			&kgo.Record{Topic: topic, Partition: no, Value: []byte(value)}).FirstErr() == nil
	})
	return value
}

// TestTopicMadeLaterLatest: a topic is waited for, is made, and is written to before it was found. All of it comes, although
// start says latest.
func TestTopicMadeLaterLatest(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) {
		ts.lease = lasting
		late := ts.topics[0] + "-late"
		cfg := ts.config(ts.net.link())
		cfg.Start.At, cfg.Topics, cfg.Missing = "latest", []string{late}, "run"
		r := startRunner(t, cfg)
		eventually(t, "it is known to be missing", func() bool { return r.s.atlas.lacks(partitionID{topic: late}, topicID{}) })
		createTopic(t, ts.admin, late, 1)
		t.Cleanup(func() { deleteTopic(t, ts.admin, late) })
		want := []string{ts.putInto(t, late, 0, "early")}
		eventually(t, "it begins", func() bool { return r.claims() == 1 })
		want = append(want, ts.putInto(t, late, 0, "late"))
		eventually(t, "what was written since came", func() bool { return r.has(want[1:]) })
		if !r.has(want) {
			t.Error("what was written before the topic was found did not come")
		}
	})
}
