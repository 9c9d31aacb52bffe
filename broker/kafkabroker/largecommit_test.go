package kafkabroker

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// largestWrite is what a coordinator writes at once: the max.message.bytes of its topic. It refuses a larger commit as a whole.
const largestWrite = 1 << 20

// TestLargeCommit: many partitions have much to remember. Together that is more than a coordinator writes at once, and yet all of
// it is committed, by itself or in a transaction.
func TestLargeCommit(t *testing.T) {
	t.Parallel()
	const parts = 300
	for name, commit := range map[string]func(*testing.T, *coordinator, []*commitment) error{
		"commit": func(t *testing.T, k *coordinator, cs []*commitment) error {
			return k.commit(t.Context(), memberID{generation: -1}, cs)
		},
		"transaction": func(t *testing.T, k *coordinator, cs []*commitment) error {
			cfg := Config{Group: k.group}.withDefaults()
			by := map[memberID][]*commitment{{generation: -1}: cs}
			return newTransactor(k, &cfg).commit(t.Context(), func() bool { return true }, by, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, parts, func(t *testing.T, ts *testSystem) {
				ts.refuseLargeCommits()
				c, err := Connection{Brokers: ts.brokers, dial: ts.net.link().dial}.withDefaults().connect()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.transport.CloseIdleConnections)
				var cs []*commitment
				for _, p := range ts.partitions() {
					cs = append(cs, &commitment{partitionID: p, offset: int64(p.no), metadata: strings.Repeat("x", metadataLimit)})
				}
				k := &coordinator{c: c, group: ts.group}
				if err := commit(t, k, cs); err != nil {
					t.Fatal(err)
				}
				for _, c := range cs {
					if c.err != nil {
						t.Fatal(c.err)
					}
				}
				cfg := Config{Group: ts.group}.withDefaults()
				at, err := newTransactor(k, &cfg).read(t.Context(), ts.partitions())
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range cs {
					if got := at[c.partitionID]; got != c.position() {
						t.Fatalf("partition %d: %d is committed, with %d bytes", c.no, got.offset, len(got.metadata))
					}
				}
			})
		})
	}
}

// partitions are those of the first topic.
func (ts *testSystem) partitions() (ps []partitionID) {
	for no := range ts.parts {
		ps = append(ps, partitionID{ts.topics[0], no})
	}
	return ps
}

// refuseLargeCommits has the fake refuse what a real coordinator does.
func (ts *testSystem) refuseLargeCommits() {
	if ts.cluster == nil {
		return
	}
	ts.cluster.ControlKey(keyOffsetCommit, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		req, size := kreq.(*kmsg.OffsetCommitRequest), 0
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, of := range req.Topics {
			at := kmsg.OffsetCommitResponseTopic{Topic: of.Topic}
			for _, p := range of.Partitions {
				size += len(*p.Metadata)
				at.Partitions = append(at.Partitions, kmsg.OffsetCommitResponseTopicPartition{
					Partition: p.Partition, ErrorCode: kerr.InvalidCommitOffsetSize.Code})
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp, nil, size > largestWrite
	})
	ts.cluster.ControlKey(keyTxnOffsetCommit, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		req, size := kreq.(*kmsg.TxnOffsetCommitRequest), 0
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, of := range req.Topics {
			at := kmsg.TxnOffsetCommitResponseTopic{Topic: of.Topic}
			for _, p := range of.Partitions {
				size += len(*p.Metadata)
				at.Partitions = append(at.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{
					Partition: p.Partition, ErrorCode: kerr.InvalidCommitOffsetSize.Code})
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp, nil, size > largestWrite
	})
}
