package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// limitMetadata has the cluster refuse commits with longer metadata, as one does whose offset.metadata.max.bytes is that.
func (ts *testSystem) limitMetadata(most int) {
	ts.cluster.ControlKey(keyOffsetCommit, func(r kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		req := r.(*kmsg.OffsetCommitRequest)
		res := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		refused := false
		for _, t := range req.Topics {
			of := kmsg.OffsetCommitResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				is := kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition}
				if p.Metadata != nil && len(*p.Metadata) > most {
					is.ErrorCode, refused = kerr.OffsetMetadataTooLarge.Code, true
				}
				of.Partitions = append(of.Partitions, is)
			}
			res.Topics = append(res.Topics, of)
		}
		return res, nil, refused
	})
}

// A hand takes messages of a source, and settles them when it is told.
type hand struct {
	t  *testing.T
	s  *Source
	ms []broker.Message
}

// open opens a source that Receive gives all to, at once.
func (ts *testSystem) open(t *testing.T, cfg Config, budget int) *hand {
	t.Helper()
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts.set(func() { ts.sources = append(ts.sources, s) })
	o := broker.Options{Budget: broker.Budget{Messages: budget, Bytes: 64 << 20}, Observe: func(broker.Event) {}}
	if _, err := s.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return &hand{t: t, s: s}
}

// take takes n messages.
func (h *hand) take(n int) {
	h.t.Helper()
	dst := make([]broker.Message, n)
	for n > 0 {
		got, err := h.s.Receive(dst[:n])
		if err != nil {
			h.t.Fatal(err)
		}
		h.ms, n = append(h.ms, dst[:got]...), n-got
	}
}

// ack acks those of the taken that are wanted, and keeps the others.
func (h *hand) ack(wanted func(m *broker.Message) bool) {
	h.t.Helper()
	h.ms = slices.DeleteFunc(h.ms, func(m broker.Message) bool {
		if !wanted(&m) {
			return false
		}
		if err := h.s.Ack(m.Claim, []uint64{m.Token}); err != nil {
			h.t.Error(err)
		}
		return true
	})
}

// TestMetadataTooLarge: a broker takes less metadata than others do. What is finished above an unfinished message is remembered
// as far as there is room, and so does not come again after a crash.
func TestMetadataTooLarge(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.lease = lasting
	ts.limitMetadata(100)
	ts.put(t, ts.topics[0], 0, 2000)
	l := ts.net.link()
	h := ts.open(t, ts.config(l), 2000)
	h.take(2000)
	h.ack(func(m *broker.Message) bool { return m.Offset%2 > 0 })
	eventually(t, "what fits is committed", func() bool { return ts.unsettled(t) < 2000 })
	left := ts.unsettled(t)
	l.kill()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.s.Close(gone)

	next := ts.open(t, ts.config(ts.net.link()), 2000)
	defer func() { _ = next.s.Close(context.Background()) }()
	next.take(int(left))
	next.ack(func(*broker.Message) bool { return true })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestMetadataTooLargeMadeAgain: a topic is made anew while its claim drains, at a broker that takes less metadata than others
// do. The last commit names the old topic's offset, and the broker takes it as one of the new topic. Who has the partition next
// sees by the metadata whose it is, and begins at the new topic's beginning.
func TestMetadataTooLargeMadeAgain(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.lease = lasting
	ts.limitMetadata(100)
	ts.put(t, ts.topics[0], 0, 2000)
	cfg := ts.config(ts.net.link())
	cfg.RevokeWait, cfg.RebalanceTimeout = lasting, 2*lasting
	h := ts.open(t, cfg, 2000)
	defer func() { _ = h.s.Close(context.Background()) }()
	h.take(2000)
	h.ack(func(m *broker.Message) bool { return m.Offset%2 > 0 })
	ts.awaitCommit(t, func(p position) bool { return p.offset == 0 })
	h.ack(func(m *broker.Message) bool { return m.Offset < 1998 })
	ts.awaitCommit(t, func(p position) bool { return p.offset == 1998 })

	claim := h.ms[0].Claim
	ts.bounceClaim(t, claim)
	eventually(t, "it drains", func() bool { return !claim.Startable() })
	ts.recreate(t, ts.topics[0])
	ts.put(t, ts.topics[0], 2000, 2500)
	before := h.s.atlas.looks()
	eventually(t, "the new topic was seen", func() bool { return h.s.atlas.looks() > before+1 })
	h.ack(func(*broker.Message) bool { return true })
	h.take(1)
	if at := h.ms[0].Offset; at != 0 {
		t.Errorf("the new topic is read from offset %d", at)
	}
}

// awaitCommit waits for what is committed of the first partition.
func (ts *testSystem) awaitCommit(t *testing.T, is func(p position) bool) {
	t.Helper()
	eventually(t, "it is committed", func() bool { return is(committedOf(t, ts.admin, ts.group, ts.topics[0], 1)[0]) })
}

// TestMetadataNone: a broker takes no metadata at all, and the group is a new one. Its partitions begin all the same.
func TestMetadataNone(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 25} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 1, 1)
			ts.limitMetadata(most)
			want := ts.put(t, ts.topics[0], 0, 10)
			r := startRunner(t, ts.config(ts.net.link()))
			eventually(t, "all messages came", func() bool { return r.has(want) })
			eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
		})
	}
}
