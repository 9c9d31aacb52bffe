package kafkabroker

import (
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestGroupRightTakenAway: who may not use the group any more loses what it has with its session, and goes on when it may again.
// Who never could is refused for good: it is a mistake that somebody has to hear of.
func TestGroupRightTakenAway(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"sticky", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1}, protocol)
			takeAway := func() *kfake.FaultHandle {
				return ts.cluster.Fault(kfake.Fault{Err: kerr.GroupAuthorizationFailed, TopLevel: true, Count: 1 << 30, Keys: []kmsg.Key{
					kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.ConsumerGroupHeartbeat}})
			}
			ts.lease = time.Second // a busy machine stands still for longer than the suite's lease
			want := ts.put(t, ts.topics[0], 0, 20)
			r := startRunner(t, ts.config(ts.net.link()))
			eventually(t, "the messages come", func() bool { return r.has(want) })
			taken := takeAway()
			eventually(t, "it is told", func() bool { _, ok := r.event(broker.Down, "Group Authorization Failed"); return ok })
			eventually(t, "its claim is lost", func() bool { _, ok := r.event(broker.Ended, ""); return ok })
			late, err := NewSource(ts.config(ts.net.link()))
			if err != nil {
				t.Fatal(err)
			}
			defer late.Close(t.Context())
			_, err = late.Open(t.Context(), broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}})
			if codeOf(err) != kafka.GroupAuthorizationFailed {
				t.Errorf("who begins now: %v", err)
			}
			want = append(want, ts.put(t, ts.topics[0], 20, 20)...)
			taken.Remove()
			eventually(t, "all messages come", func() bool { return r.has(want) })
			eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		})
	}
}
