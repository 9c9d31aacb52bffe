package kafkabroker

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

func TestLagOf(t *testing.T) {
	p, id := partitionID{"orders", 3}, topicID{1}
	meta := func(pr progress) string { return pr.encode(metadataLimit) }
	done := []span{{12, 15}, {20, 22}}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		pos        position
		start, end bound
		want       PartitionLag
	}{
		"nothing committed": {position{offset: -1}, bound{}, bound{offset: 40}, PartitionLag{Committed: -1, End: 40, Lag: -1}},
		"all done":          {position{offset: 40}, bound{}, bound{offset: 40}, PartitionLag{Committed: 40, End: 40}},
		"another client": {position{offset: 10, metadata: "theirs"}, bound{}, bound{offset: 40},
			PartitionLag{Committed: 10, End: 40, Lag: 30}},
		"finished above": {position{offset: 10, metadata: meta(progress{base: 10, log: id.log(), done: done})}, bound{},
			bound{offset: 40}, PartitionLag{Committed: 10, End: 40, Lag: 30, Finished: 5}},
		"the topic has no id": {position{offset: 10, metadata: meta(progress{base: 10, done: done})}, bound{}, bound{offset: 40},
			PartitionLag{Committed: 10, End: 40, Lag: 30, Finished: 5}},
		"of an older topic": {position{offset: 10, metadata: meta(progress{base: 10, log: 7, done: done})}, bound{},
			bound{offset: 4}, PartitionLag{Committed: -1, End: 4, Lag: -1}},
		"malformed": {position{offset: 10, metadata: metadataPrefix + "xx"}, bound{}, bound{offset: 40},
			PartitionLag{Committed: 10, End: 40, Lag: 30}},
		"retention has passed": {position{offset: 10, metadata: meta(progress{base: 10, done: done})}, bound{offset: 21},
			bound{offset: 40}, PartitionLag{Committed: 10, Start: 21, End: 40, Lag: 19, Finished: 1}},
		"beyond the end": {position{offset: 10, metadata: meta(progress{base: 10, done: done})}, bound{}, bound{offset: 8},
			PartitionLag{Committed: 10, End: 8}},
		"an end is not known": {position{offset: 10}, bound{}, bound{err: broken},
			PartitionLag{Committed: -1, Start: -1, End: -1, Lag: -1, Err: broken}},
		"an end is nonsense": {position{offset: 10}, bound{}, bound{offset: -7},
			PartitionLag{Committed: -1, Start: -1, End: -1, Lag: -1, Err: errShort}},
		"position is not known": {position{err: broken}, bound{}, bound{},
			PartitionLag{Committed: -1, Start: -1, End: -1, Lag: -1, Err: broken}},
	} {
		got := lagOf(p, c.pos, id, c.start, c.end)
		if !errors.Is(got.Err, c.want.Err) {
			t.Errorf("%s: %v", name, got.Err)
		}
		c.want.Topic, c.want.Partition, c.want.Err = "orders", 3, got.Err
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestLagViewRefused(t *testing.T) {
	_, err := NewLagView(LagViewConfig{Connection: Connection{Brokers: []string{"nohost"}}, Topics: []string{"a"}, Pattern: "a("})
	for _, want := range []string{"Brokers[0]", "Group is missing", "Pattern is set, and so is Topics"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
}

// TestLagView looks at what is committed on a cluster, by topics, by pattern and by what the group has.
func TestLagView(t *testing.T) {
	ts := newTestSystem(t, 2, 2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	at := Connection{Brokers: ts.brokers}
	pub, err := NewPublisher(PublisherConfig{Connection: at})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close(ctx)
	for range 10 {
		if err := pub.Publish(ctx, []broker.Outgoing{{Topic: ts.topics[0], Key: []byte("k"), Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
	}
	no := int32(murmur2.Balance(kafka.Message{Key: []byte("k")}, 0, 1))
	read := func(cfg LagViewConfig) []PartitionLag {
		t.Helper()
		cfg.Connection, cfg.Group = at, testGroup
		v, err := NewLagView(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		lags, err := v.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return lags
	}
	if lags := read(LagViewConfig{}); len(lags) != 0 {
		t.Errorf("of a group without commits: %+v", lags)
	}
	commitAs(t, at, &commitment{partitionID: partitionID{ts.topics[0], no}, offset: 2,
		metadata: progress{base: 2, done: []span{{4, 7}}}.encode(metadataLimit)})
	want := []PartitionLag{{Topic: ts.topics[0], Committed: -1, Lag: -1},
		{Topic: ts.topics[0], Partition: 1, Committed: -1, Lag: -1}}
	want[no] = PartitionLag{Topic: ts.topics[0], Partition: no, Committed: 2, End: 10, Lag: 8, Finished: 3}
	for _, cfg := range []LagViewConfig{{}, {Topics: ts.topics[:1]}, {Pattern: ".*0"}} {
		if got := read(cfg); !reflect.DeepEqual(got, want) {
			t.Errorf("%v %v: %+v, want %+v", cfg.Topics, cfg.Pattern, got, want)
		}
	}
	if lags := read(LagViewConfig{Topics: []string{"none"}}); len(lags) != 1 ||
		codeOf(lags[0].Err) != kafka.UnknownTopicOrPartition || lags[0].Topic != "none" {
		t.Errorf("of a topic that is not there: %+v", lags)
	}
}

// TestLagViewMalformed: an answer says nothing of a topic that was asked for. That is not that nothing waits there.
func TestLagViewMalformed(t *testing.T) {
	ts := newTestSystem(t, 1, 1)
	at := Connection{Brokers: ts.brokers, RequestTimeout: time.Second} // it looks again for so long
	v, err := NewLagView(LagViewConfig{Connection: at, Group: testGroup, Topics: ts.topics})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	ts.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if r := req.(*kmsg.MetadataRequest); len(r.Topics) != 1 || r.Topics[0].Topic == nil {
			return nil, nil, false
		}
		return req.ResponseKind(), nil, true
	})
	lags, err := v.Read(t.Context())
	if err != nil || len(lags) != 1 || lags[0].Topic != ts.topics[0] || !errors.Is(lags[0].Err, errShort) {
		t.Errorf("%+v, %v", lags, err)
	}
}

// commitAs commits as somebody who is no member.
func commitAs(t *testing.T, at Connection, c *commitment) {
	t.Helper()
	cl, err := at.withDefaults().connect()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.transport.CloseIdleConnections()
	k := &coordinator{c: cl, group: testGroup}
	if err := k.commit(t.Context(), memberID{generation: -1}, []*commitment{c}); err != nil || c.err != nil {
		t.Fatal(err, c.err)
	}
}

// TestLagViewUnreachable: the error says which broker, and why.
func TestLagViewUnreachable(t *testing.T) {
	v, err := NewLagView(LagViewConfig{Connection: Connection{Brokers: []string{"127.0.0.1:1"}, RequestTimeout: time.Second},
		Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := v.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "broker 127.0.0.1:1: ") ||
		!strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// FuzzLag: whatever a broker answers, no more is finished than there is to do.
func FuzzLag(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 'a', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, int64(3), "",
		int64(0), int64(9))
	f.Add([]byte{}, int64(5), progress{base: 5, done: []span{{7, 9}, {100, 4000}}}.encode(metadataLimit), int64(8), int64(200))
	f.Fuzz(func(t *testing.T, b []byte, offset int64, metadata string, start, end int64) {
		if at, _, err := readPositions(&reader{b: b}); err == nil && len(at) > len(b) {
			t.Fatalf("%d positions of %d bytes", len(at), len(b))
		}
		if at, err := readBounds(&reader{b: b}); err == nil && len(at) > len(b) {
			t.Fatalf("%d bounds of %d bytes", len(at), len(b))
		}
		l := lagOf(partitionID{"a", 0}, position{offset: offset, metadata: metadata}, topicID{}, bound{offset: start},
			bound{offset: end})
		if l.Lag < -1 || l.Finished < 0 || l.Finished > max(0, l.Lag) || l.Lag > max(0, end) {
			t.Fatalf("%+v of %d from %d to %d", l, offset, start, end)
		}
	})
}

// TestLagViewProtocol: a group's protocol is that of its members, and a group without members has none.
func TestLagViewProtocol(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) {
		v, err := NewLagView(LagViewConfig{Connection: Connection{Brokers: ts.brokers}, Group: ts.group})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		speaks := func(want string) func() bool {
			return func() bool {
				got, err := v.Protocol(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return got == want
			}
		}
		if !speaks("")() {
			t.Error("a group that nobody has joined has a protocol")
		}
		r := startRunner(t, ts.config(ts.net.link()))
		eventually(t, "it is known", speaks(ts.membership))
		r.close()
		eventually(t, "a group that all have left has none", speaks(""))
	})
}

// TestLagViewProtocolOld: Kafka 3.9 lists the request for groups of the consumer protocol, and refuses it. All its groups are
// classic.
func TestLagViewProtocolOld(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupDescribe}, Err: kerr.UnsupportedVersion, Count: -1})
	v, err := NewLagView(LagViewConfig{Connection: Connection{Brokers: ts.brokers}, Group: ts.group})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	startRunner(t, ts.config(ts.net.link()))
	eventually(t, "it is known", func() bool {
		got, err := v.Protocol(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got == "classic"
	})
}
