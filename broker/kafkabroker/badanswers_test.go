package kafkabroker

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// A badAnswer is what a broker, or whoever leads the group, says a few times in place of what is so. It is well formed, and no
// error.
type badAnswer struct {
	protocol string
	key      kmsg.Key
	times    int64
	start    string
	answer   func(ts *testSystem, req kmsg.Request) kmsg.Response
	told     string       // in a Warning, or a Down; empty: need not be
	fault    *kfake.Fault // what happens beside it, when the first messages were handled
}

// give has it said so often, and counts.
func (a *badAnswer) give(ts *testSystem, faulty *atomic.Bool) *atomic.Int64 {
	var given atomic.Int64
	ts.cluster.ControlKey(int16(a.key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if given.Load() >= a.times || a.fault != nil && !faulty.Load() {
			return nil, nil, false
		}
		res := a.answer(ts, req)
		if res == nil {
			return nil, nil, false
		}
		given.Add(1)
		return res, nil, true
	})
	return &given
}

// assigning is a SyncGroup with these partitions.
func assigning(nos ...int32) func(ts *testSystem, req kmsg.Request) kmsg.Response {
	return func(ts *testSystem, req kmsg.Request) kmsg.Response {
		w := writer{}
		w.i16(0)
		w.array(1)
		w.str(ts.topics[0])
		w.array(len(nos))
		for _, no := range nos {
			w.i32(no)
		}
		w.i32(-1)
		res := req.ResponseKind().(*kmsg.SyncGroupResponse)
		res.MemberAssignment = w.b
		return res
	}
}

// fetching answers a fetch of the partition 0, where it is asked for at this offset.
func fetching(at int64, of func(id [16]byte) []kmsg.FetchResponseTopic) func(ts *testSystem, req kmsg.Request) kmsg.Response {
	return func(ts *testSystem, req kmsg.Request) kmsg.Response {
		r := req.(*kmsg.FetchRequest)
		if len(r.Topics) == 0 || !slices.ContainsFunc(r.Topics[0].Partitions, func(p kmsg.FetchRequestTopicPartition) bool {
			return p.Partition == 0 && p.FetchOffset == at
		}) {
			return nil
		}
		res := req.ResponseKind().(*kmsg.FetchResponse)
		res.Topics = of(r.Topics[0].TopicID)
		return res
	}
}

// batches is an answer with records of partitions.
func batches(id [16]byte, ps ...kmsg.FetchResponseTopicPartition) []kmsg.FetchResponseTopic {
	t := kmsg.NewFetchResponseTopic()
	t.TopicID, t.Partitions = id, ps
	return []kmsg.FetchResponseTopic{t}
}

func records(no int32, high int64, raw []byte) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.HighWatermark, p.LastStableOffset, p.RecordBatches = no, high, high, raw
	return p
}

func valued(topic string) func(int64) []byte {
	return func(o int64) []byte { return fmt.Appendf(nil, "%s-%d", topic, o) }
}

var badAnswers = map[string]badAnswer{
	"SyncGroup: a negative partition": {key: kmsg.SyncGroup, times: 2, answer: assigning(0, -7), told: "malformed"},
	"SyncGroup: a partition too many": {key: kmsg.SyncGroup, times: 2, answer: assigning(0, 1, 1<<31-1)},
	"SyncGroup: one twice":            {key: kmsg.SyncGroup, times: 2, answer: assigning(0, 0, 1, 1)},
	"heartbeat: a negative partition": {protocol: "consumer", key: kmsg.ConsumerGroupHeartbeat, times: 2,
		answer: func(ts *testSystem, req kmsg.Request) kmsg.Response {
			res := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			id := ts.cluster.TopicInfo(ts.topics[0]).TopicID
			res.MemberID, res.MemberEpoch, res.HeartbeatIntervalMillis = new(string), 1, 100
			res.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{
				Topics: []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{{TopicID: id, Partitions: []int32{-7}}}}
			return res
		}, told: "malformed"},
	"Fetch: only what is below": {key: kmsg.Fetch, times: 1, answer: fetching(5, func(id [16]byte) []kmsg.FetchResponseTopic {
		return batches(id, records(0, 10, testBatch{offsets: offsets(0, 3)}.bytes()))
	}), told: "offset 5"},
	"Fetch: a batch that ends before it begins": {key: kmsg.Fetch, times: 1,
		answer: fetching(5, func(id [16]byte) []kmsg.FetchResponseTopic {
			b := testBatch{base: 5, offsets: offsets(5, 6), corrupt: func(b []byte) {
				binary.BigEndian.PutUint32(b[atLastDelta:], 0xfffffff0)
			}}
			return batches(id, records(0, 10, b.bytes()))
		}), told: "offset 5"},
	"Fetch: others, and one twice": {key: kmsg.Fetch, times: 2, answer: fetching(5, func(id [16]byte) []kmsg.FetchResponseTopic {
		other := batches([16]byte{1}, records(0, 10, testBatch{base: 5, offsets: offsets(5, 10), value: valued("other")}.bytes()))
		wrong := records(0, 10, testBatch{base: 5, offsets: offsets(5, 10), value: valued("twice")}.bytes())
		return append(other, batches(id, records(7, 10, nil), records(-1, 10, nil), records(0, 10, []byte{}), wrong)...)
	})},
	"Fetch: nothing at all": {key: kmsg.Fetch, times: 3,
		answer: fetching(5, func([16]byte) []kmsg.FetchResponseTopic { return nil })},
	"Fetch: an epoch that goes back": {key: kmsg.Fetch, times: 1, answer: fetching(5, func(id [16]byte) []kmsg.FetchResponseTopic {
		epoch := func(n uint32) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint32(b[atEpoch:], n) } }
		raw := append(testBatch{base: 5, offsets: offsets(5, 6), value: valued("topic0"), corrupt: epoch(9)}.bytes(),
			testBatch{base: 6, offsets: offsets(6, 7), value: valued("topic0"), corrupt: epoch(0)}.bytes()...)
		return batches(id, records(0, 10, raw))
	})},
	"Fetch: an end below the position": {key: kmsg.Fetch, times: 2, answer: fetching(5, func(id [16]byte) []kmsg.FetchResponseTopic {
		return batches(id, records(0, -1, []byte{}))
	})},
	"ListOffsets: no end": {key: kmsg.ListOffsets, times: 2, start: "latest",
		answer: func(_ *testSystem, req kmsg.Request) kmsg.Response {
			return offsetsListed(req, func(int64) int64 { return -1 })
		}},
	"ListOffsets: a start behind the end": {key: kmsg.ListOffsets, times: 4,
		fault: &kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange, Count: 2},
		answer: func(ts *testSystem, req kmsg.Request) kmsg.Response {
			return offsetsListed(req, func(at int64) int64 { return map[bool]int64{true: 10, false: 100}[at == timeEnd] })
		}, told: "malformed"},
	"Fetch: a replica that nobody knows": {key: kmsg.Fetch, times: 3,
		answer: fetching(5, func(id [16]byte) []kmsg.FetchResponseTopic {
			p := records(0, 10, []byte{})
			p.PreferredReadReplica = 99
			return batches(id, p)
		})},
	"OffsetFetch: no partition": {key: kmsg.OffsetFetch, times: 3, answer: func(_ *testSystem, req kmsg.Request) kmsg.Response {
		return req.ResponseKind()
	}, told: "no answer for"},
	"OffsetCommit: no partition": {key: kmsg.OffsetCommit, times: 3, answer: func(_ *testSystem, req kmsg.Request) kmsg.Response {
		return req.ResponseKind()
	}, told: "no answer for"},
	"FindCoordinator: a broker that is none": {key: kmsg.FindCoordinator, times: 1,
		answer: func(_ *testSystem, req kmsg.Request) kmsg.Response {
			res := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
			res.NodeID, res.Port = -1, -1
			return res
		}},
	"JoinGroup: nobody, who leads nobody": {key: kmsg.JoinGroup, times: 3,
		answer: func(_ *testSystem, req kmsg.Request) kmsg.Response {
			res := req.ResponseKind().(*kmsg.JoinGroupResponse)
			res.Generation = -1
			return res
		}},
	"OffsetFetch: an error for a part": {key: kmsg.OffsetFetch, times: 3,
		answer: func(ts *testSystem, req kmsg.Request) kmsg.Response {
			res := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			for i, t := range req.(*kmsg.OffsetFetchRequest).Topics {
				rt := kmsg.NewOffsetFetchResponseTopic()
				rt.Topic = t.Topic
				for _, no := range t.Partitions {
					rp := kmsg.NewOffsetFetchResponseTopicPartition()
					rp.Partition, rp.Offset = no, -1
					if i == 0 && no == 0 {
						rp.ErrorCode = 14 // COORDINATOR_LOAD_IN_PROGRESS
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				res.Topics = append(res.Topics, rt)
			}
			return res
		}},
	"Metadata: no brokers and no leaders": {key: kmsg.Metadata, times: 6,
		answer: func(ts *testSystem, req kmsg.Request) kmsg.Response {
			switch req.GetVersion() {
			case 12:
			case 8: // of the Transport
				return req.ResponseKind()
			default: // another client's
				return nil
			}
			return laidOut(ts, req, func(t *kmsg.MetadataResponseTopic) {
				for i := range t.Partitions {
					t.Partitions[i].Leader = 77
				}
			})
		}},
	"Metadata: another id each time": {key: kmsg.Metadata, times: 4,
		answer: func(ts *testSystem, req kmsg.Request) kmsg.Response {
			if req.GetVersion() != 12 { // another client's
				return nil
			}
			return laidOut(ts, req, func(t *kmsg.MetadataResponseTopic) {
				binary.BigEndian.PutUint64(t.TopicID[:], uint64(time.Now().UnixNano()))
			})
		}},
}

// offsetsListed says at which offsets what is asked for is.
func offsetsListed(req kmsg.Request, of func(at int64) int64) kmsg.Response {
	res := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.(*kmsg.ListOffsetsRequest).Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset = p.Partition, of(p.Timestamp)
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	return res
}

// laidOut is a layout of the topic, without brokers, of which something is otherwise.
func laidOut(ts *testSystem, req kmsg.Request, otherwise func(t *kmsg.MetadataResponseTopic)) kmsg.Response {
	res := req.ResponseKind().(*kmsg.MetadataResponse)
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID = &ts.topics[0], ts.cluster.TopicInfo(ts.topics[0]).TopicID
	for no := range ts.parts {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition = no
		t.Partitions = append(t.Partitions, p)
	}
	otherwise(&t)
	res.Topics = append(res.Topics, t)
	return res
}

// TestBadAnswers: what a broker says is wrong, and as well formed as ever. The source lives on, loses nothing, and hands out
// nothing that is not in the log.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	for name, a := range badAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := startFake(t, brokertest.Setup{Topics: 1, Partitions: 2, Lease: lasting}, map[bool]string{true: "consumer",
				false: "sticky"}[a.protocol != ""], kfake.NumBrokers(1))
			ts.lease = lasting
			testBadAnswer(t, ts, &a)
		})
	}
}

func testBadAnswer(t *testing.T, ts *testSystem, a *badAnswer) {
	topic := ts.topics[0]
	var old, want []string
	for i := range 5 {
		old = append(old, ts.putInto(t, topic, 0, fmt.Sprintf("%s-%d", topic, i)))
	}
	cfg := ts.config(ts.net.link())
	if cfg.Start.At = a.start; a.start == "" {
		want = old
	}
	var faulty atomic.Bool
	given := a.give(ts, &faulty)
	r := startRunner(t, cfg)
	if a.key == kmsg.Fetch || a.start == "" {
		eventually(t, "the first messages came", func() bool { return r.has(want) })
	}
	eventually(t, "the partitions have begun", func() bool { return r.claims() == 2 })
	if a.fault != nil {
		eventually(t, "the first messages are committed", func() bool { return ts.unsettled(t) == 0 })
		faulty.Store(true)
		ts.cluster.Fault(*a.fault)
	}
	for i := 5; i < 10; i++ {
		want = append(want, ts.putInto(t, topic, 0, fmt.Sprintf("%s-%d", topic, i)))
	}
	eventually(t, "the answers were given", func() bool { return given.Load() == a.times })
	eventually(t, "all messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	for v := range r.seen() {
		if !slices.Contains(want, v) {
			t.Errorf("%q came, which is not to come", v)
		}
	}
	if a.told == "" {
		return
	}
	_, warned := r.event(broker.Warning, a.told)
	if _, down := r.event(broker.Down, a.told); !warned && !down {
		t.Errorf("nothing is told of it: %v", r.events)
	}
}
