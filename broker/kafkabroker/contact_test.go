package kafkabroker

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestDownWhileOthersAnswer: the coordinator of transactions or of the group takes nothing, while leaders go on to answer. Down
// is told of that with its pauses, and no Up before the coordinator takes something again.
func TestDownWhileOthersAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		protocol string
		key      kmsg.Key
	}{
		"no transaction": {"transactional", kmsg.EndTxn},
		"no commit":      {"sticky", kmsg.OffsetCommit},
		"no heartbeat":   {"sticky", kmsg.Heartbeat},
		"no beat":        {"consumer", kmsg.ConsumerGroupHeartbeat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, tc.protocol)
			testDownWhileOthersAnswer(t, ts, tc.key)
		})
	}
}

func testDownWhileOthersAnswer(t *testing.T, ts *testSystem, key kmsg.Key) {
	r := startRunner(t, ts.config(ts.net.link()))
	contact := func() (told []broker.Kind) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events {
			if e.Kind == broker.Up || e.Kind == broker.Down {
				told = append(told, e.Kind)
			}
		}
		return told
	}
	eventually(t, "it is up", func() bool { return slices.Equal(contact(), []broker.Kind{broker.Up}) })
	want := ts.put(t, ts.topics[0], 0, 1)
	eventually(t, "it works", func() bool { return r.has(want) && ts.unsettled(t) == 0 })
	h := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.CoordinatorNotAvailable, Count: -1,
		TopLevel: key != kmsg.OffsetCommit})
	want = ts.put(t, ts.topics[0], 1, 10)
	eventually(t, "the messages came", func() bool { return r.has(want) })
	eventually(t, "it is told twice", func() bool {
		return len(slices.DeleteFunc(contact(), func(k broker.Kind) bool { return k == broker.Up })) == 2
	})
	if told := contact(); !slices.Equal(told, []broker.Kind{broker.Up, broker.Down, broker.Down}) {
		t.Errorf("told %v, though nothing was taken", told)
	}
	h.Remove()
	eventually(t, "it is up again", func() bool { told := contact(); return told[len(told)-1] == broker.Up })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}
