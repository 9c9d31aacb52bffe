package kafkabroker

import (
	"context"
	"strings"
	"testing"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestGroupOfAnotherKind: a share group has the name of our group. It never lets us in, so that Open says so, and which setting
// is to be another one, whatever our protocol is.
func TestGroupOfAnotherKind(t *testing.T) {
	t.Parallel()
	setup := brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}
	for _, membership := range []string{"classic", "consumer", "auto"} {
		t.Run("fake/"+membership, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, setup, "sticky")
			ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: kerr.GroupIDNotFound, Count: -1,
				TopLevel: true})
			ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.InconsistentGroupProtocol, Count: -1})
			testGroupOfAnotherKind(t, ts, membership)
		})
	}
	t.Run("real", func(t *testing.T) {
		ts := realSystem(t, setup, "sticky")
		req := kmsg.NewPtrShareGroupHeartbeatRequest()
		req.GroupID, req.MemberID, req.SubscribedTopicNames = ts.group, newMemberID(), ts.topics
		again(t, func() error {
			resp, err := req.RequestWith(t.Context(), ts.admin)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(resp.ErrorCode)
		})
		for _, membership := range []string{"classic", "consumer", "auto"} {
			testGroupOfAnotherKind(t, ts, membership)
		}
	})
}

func testGroupOfAnotherKind(t *testing.T, ts *testSystem, membership string) {
	cfg := ts.config(ts.net.link())
	cfg.Membership = membership
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(broker.Event) {}})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "Group is \""+ts.group+"\", and a group of another kind") {
		t.Errorf("%s: Open: %v", membership, err)
	}
	if code := codeOf(err); code != kafka.GroupIdNotFound && code != kafka.InconsistentGroupProtocol {
		t.Errorf("%s: the broker's answer is not in: %v", membership, err)
	}
}
