package kafkabroker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestFullGroup: the group has as many members as the broker allows. Who is one too many is told so by the error's name, and by
// the setting.
func TestFullGroup(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1, kfake.BrokerConfigs(map[string]string{"group.max.size": "1"}))
	cfg := ts.config(ts.net.link())
	first := startRunner(t, cfg)
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "the first one has all", func() bool { return first.has(want) })
	if err := refusedOpen(t, cfg); err == nil || !strings.Contains(err.Error(), "GROUP_MAX_SIZE_REACHED") ||
		!strings.Contains(err.Error(), "group.max.size") {
		t.Errorf("Open returned %v, want the error's name and the setting", err)
	}
}

// TestFullModernGroup is TestFullGroup in the consumer protocol, whose brokers have another setting for it.
func TestFullModernGroup(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1}, "consumer")
	ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: kerr.GroupMaxSizeReached, Count: -1,
		TopLevel: true})
	if err := refusedOpen(t, ts.config(ts.net.link())); err == nil || !strings.Contains(err.Error(), "GROUP_MAX_SIZE_REACHED") ||
		!strings.Contains(err.Error(), "group.consumer.max.size") {
		t.Errorf("Open returned %v, want the error's name and the setting", err)
	}
}

// refusedOpen is what Open says after two seconds in which it was not let in.
func refusedOpen(t *testing.T, cfg Config) error {
	t.Helper()
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1 << 20}, Observe: func(broker.Event) {}})
	return err
}

// TestPutOutOfAFullGroup: a group is full, and one process too many tries to join. When the group joins anew, that one gets in,
// and who comes last is refused, though it was a member: the coordinator has put it out, and gives its partitions to others as
// soon as all that are left have joined. So it loses them at once, and not at the end of its session.
func TestPutOutOfAFullGroup(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: 2 * lasting}, "sticky")
	r := startRunner(t, ts.config(ts.net.link()))
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "it has all", func() bool { return r.has(want) })
	ts.set(func() { ts.sources = append(ts.sources, r.s) })
	full := ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupMaxSizeReached, Count: -1})
	ts.rebalance()
	eventually(t, "its claim ends", func() bool { _, ended := r.event(broker.Ended, "GROUP_MAX_SIZE_REACHED"); return ended })
	full.Remove()
	want = append(want, ts.put(t, ts.topics[0], 3, 3)...)
	eventually(t, "it goes on when there is room", func() bool { return r.has(want) })
}

// TestFullGroupJoinsAnew: who was one too many does not ask again while the group joins anew: it would get in, and a member would
// be put out whose partitions nobody has then for as long as the group waits for it.
func TestFullGroupJoinsAnew(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "sticky")
	var looks atomic.Int64
	const joining = 5
	ts.cluster.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if looks.Add(1) > joining {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.State, g.ProtocolType = ts.group, "PreparingRebalance", "consumer"
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
	ts.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if n := looks.Load(); n > joining {
			return nil, nil, false
		} else if n > 0 {
			t.Errorf("it asks to join after %d looks at a group that joins anew", n)
		}
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.GroupMaxSizeReached.Code
		return resp, nil, true
	})
	r := startRunner(t, ts.config(ts.net.link()))
	want := ts.put(t, ts.topics[0], 0, 3)
	eventually(t, "it joins then", func() bool { return r.has(want) })
}
