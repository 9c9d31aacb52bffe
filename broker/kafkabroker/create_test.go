package kafkabroker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestDestinations: a publisher knows whether a topic is there, makes one that keeps its messages, and takes messages for it at
// once; a second time is no error.
func TestDestinations(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t).(broker.Destinations)
	if err := p.Find(t.Context(), ts.topics[0]); err != nil {
		t.Errorf("a topic that is there: %v", err)
	}
	if err := p.Find(t.Context(), "dead"); !errors.Is(err, broker.ErrNoTopic) {
		t.Errorf("one that is not: %v", err)
	}
	for range 2 {
		if err := p.Create(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Find(t.Context(), "dead"); err != nil {
		t.Errorf("one that was made: %v", err)
	}
	if err := p.(broker.Publisher).Publish(t.Context(), []broker.Outgoing{{Topic: "dead", Value: []byte("v")}}); err != nil {
		t.Error(err)
	}
	if ti := ts.cluster.TopicInfo("dead"); ti == nil || ti.Configs["retention.ms"] == nil || *ti.Configs["retention.ms"] != "-1" {
		t.Errorf("the topic is %+v", ti)
	}
	if err := p.Create(t.Context(), "__state"); !errors.Is(err, broker.ErrReserved) {
		t.Errorf("Kafka's own: %v", err)
	}
	_ = p.(broker.Publisher).Close(t.Context())
	if err := p.Find(t.Context(), "dead"); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestFindMalformed: an answer says nothing of the topic that was asked for. That does not say that it is there.
func TestFindMalformed(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	p := ts.publisher(t).(broker.Destinations)
	ts.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if r := req.(*kmsg.MetadataRequest); len(r.Topics) != 1 || r.Topics[0].Topic == nil {
			return nil, nil, false
		}
		return req.ResponseKind(), nil, true
	})
	defer func() { _ = p.(broker.Publisher).Close(context.Background()) }()
	if err := p.Find(t.Context(), "dead"); !errors.Is(err, errShort) {
		t.Errorf("Find: %v", err)
	}
	if err := p.Create(t.Context(), "dead"); !errors.Is(err, errShort) {
		t.Errorf("Create: %v", err)
	}
}

// TestRetains: a publisher knows which topics lose what waits there for a while: those that are compacted, and those that keep
// messages for a shorter time. Who may not ask says nothing.
func TestRetains(t *testing.T) {
	t.Parallel()
	onEach(t, 1, func(t *testing.T, ts *testSystem) {
		p := ts.publisher(t)
		defer func() { _ = p.Close(context.Background()) }()
		for name, tc := range map[string]struct {
			settings []string
			waits    time.Duration
			want     string // "": it keeps it
		}{
			"usual":            {nil, time.Minute, ""},
			"for ever":         {[]string{"retention.ms", "-1"}, 1000 * time.Hour, ""},
			"too short":        {[]string{"retention.ms", "60000"}, time.Minute, "keeps messages for 1m0s only"},
			"long enough":      {[]string{"retention.ms", "60000"}, time.Second, ""},
			"compacted":        {[]string{"cleanup.policy", "compact"}, 0, "is compacted"},
			"compacted, short": {[]string{"cleanup.policy", "compact,delete"}, 0, "is compacted"},
		} {
			topic := ts.group + "-" + strings.NewReplacer(" ", "-", ",", "").Replace(name)
			createTopic(t, ts.admin, topic, 1, tc.settings...)
			t.Cleanup(func() { deleteTopic(t, ts.admin, topic) })
			err := p.(broker.Retainer).Retains(t.Context(), topic, tc.waits)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
		}
		if err := p.(broker.Retainer).Retains(t.Context(), "nowhere", time.Hour); err != nil {
			t.Errorf("a topic that does not exist: %v", err)
		}
	})
}

// TestAdmin: a topic is made with its partitions, a second time without an error, and it goes with all that is in it, as a group
// does with its commits.
func TestAdmin(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	a, err := NewAdmin(Connection{Brokers: ts.brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for range 2 {
		if err := a.CreateTopic(t.Context(), "made", 5); err != nil {
			t.Fatal(err)
		}
	}
	if ti := ts.cluster.PartitionInfo("made", 4); ti == nil || ts.cluster.PartitionInfo("made", 5) != nil {
		t.Error("the topic has not 5 partitions")
	}
	ts.commit(t, 0, "")
	for range 2 {
		if err := a.DeleteGroup(t.Context(), ts.group); err != nil {
			t.Fatal(err)
		}
	}
	groups := ask(t, ts.admin, kmsg.NewPtrListGroupsRequest(), func(r *kmsg.ListGroupsResponse) int16 { return r.ErrorCode })
	if len(groups.Groups) != 0 {
		t.Errorf("left: %+v", groups.Groups)
	}
	if err := a.DeleteTopic(t.Context(), "made"); err != nil {
		t.Fatal(err)
	}
	if ti := ts.cluster.TopicInfo("made"); ti != nil {
		t.Errorf("left: %+v", ti)
	}
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"a topic that is not there": {a.DeleteTopic(t.Context(), "made"), broker.ErrNoTopic},
		"Kafka's own to make":       {a.CreateTopic(t.Context(), "__state", 1), broker.ErrReserved},
		"Kafka's own to delete":     {a.DeleteTopic(t.Context(), "__consumer_offsets"), broker.ErrReserved},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", name, tc.err, tc.want)
		}
	}
	// The length of a name has 16 bits in these requests: who takes a longer one for a name means another one.
	ts.commit(t, 0, "")
	long := strings.Repeat("x", 1<<16)
	if err := a.CreateTopic(t.Context(), "short"+long, 1); codeOf(err) != kafka.InvalidTopic {
		t.Errorf("making a topic of a name that is too long: %.200v", err)
	}
	if err := a.DeleteTopic(t.Context(), ts.topics[0]+long); !errors.Is(err, broker.ErrNoTopic) {
		t.Errorf("deleting a topic of a name that is too long: %.200v", err)
	}
	if err := a.DeleteGroup(t.Context(), ts.group+long); codeOf(err) != kafka.InvalidGroupId {
		t.Errorf("deleting a group of a name that is too long: %.200v", err)
	}
	if ts.cluster.TopicInfo("short") != nil || ts.cluster.TopicInfo(ts.topics[0]) == nil || ts.cluster.GroupInfo(ts.group) == nil {
		t.Error("others were made or deleted")
	}
	if err := a.CreateTopic(t.Context(), "made", 0); err == nil || !strings.Contains(err.Error(), "0 partitions") {
		t.Errorf("no partitions: %v", err)
	}
	if _, err := NewAdmin(Connection{Brokers: []string{"nohost"}}); err == nil || !strings.Contains(err.Error(), "Brokers[0]") {
		t.Errorf("no address: %v", err)
	}
}
