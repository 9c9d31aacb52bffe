package kafkabroker

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// racks lets a cluster behave as one with replica.selector.class set: the leader of partition 0 sends who is in the rack "near"
// to a follower. The fake serves fetches by followers, and has no racks of its own.
type racks struct {
	mu       sync.Mutex
	near     int32
	referred int                                     // how often the leader said so
	served   int                                     // fetches that the follower got
	led      int                                     // fetches that the leader got
	answer   func(*kmsg.FetchResponseTopicPartition) // what the follower says; nil: what it has
}

func (k *racks) control(ts *testSystem) {
	leader := ts.cluster.LeaderFor(ts.topics[0], 0)
	id := ts.cluster.TopicInfo(ts.topics[0]).TopicID
	ts.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		k.mu.Lock()
		defer k.mu.Unlock()
		r := req.(*kmsg.FetchRequest)
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset, p.RecordBatches = 1_000, 1_000, []byte{}
		if ts.cluster.CurrentNode() != leader {
			if k.served++; k.answer == nil {
				return nil, nil, false
			}
			k.answer(&p)
		} else {
			if k.led++; r.Rack != "near" || k.near < 0 {
				return nil, nil, false
			}
			k.referred++
			p.PreferredReadReplica = k.near
		}
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID, t.Partitions = ts.topics[0], id, append(t.Partitions, p)
		res := req.ResponseKind().(*kmsg.FetchResponse)
		res.Topics = append(res.Topics, t)
		return res, nil, true
	})
}

func (k *racks) counts() (referred, served, led int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.referred, k.served, k.led
}

// TestRack: who has a rack fetches from the follower that the leader names, stays with it, and goes back to the leader when the
// follower has the partition no more (KIP-392).
func TestRack(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1, kfake.NumBrokers(2))
	leader := ts.cluster.LeaderFor(ts.topics[0], 0)
	k := &racks{near: 1 - leader}
	ts.cluster.SetFollowers(ts.topics[0], 0, []int32{k.near})
	k.control(ts)
	want := ts.put(t, ts.topics[0], 0, 20)
	ts.lease = patience // who loses the partition, or gets no answer in time, rightly asks the leader first
	cfg := ts.config(ts.net.link())
	cfg.Rack, cfg.RequestTimeout = "near", patience
	r := startRunner(t, cfg)
	eventually(t, "the messages came", func() bool { return r.has(want) })
	referred, served, led := k.counts()
	if referred == 0 || served == 0 {
		t.Fatalf("the leader referred us %d times, the follower got %d fetches", referred, served)
	}
	want = append(want, ts.put(t, ts.topics[0], 20, 20)...)
	eventually(t, "more messages came", func() bool { return r.has(want) })
	eventually(t, "the follower is asked again", func() bool { _, now, _ := k.counts(); return now > served+3 })
	if _, _, now := k.counts(); now != led {
		t.Errorf("the leader got %d more fetches", now-led)
	}
	k.mu.Lock()
	k.near = -1
	k.mu.Unlock()
	ts.cluster.SetFollowers(ts.topics[0], 0, nil) // it answers that it does not have the partition
	want = append(want, ts.put(t, ts.topics[0], 40, 20)...)
	eventually(t, "messages came from the leader", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestBadFollower: the follower that the leader names refuses to give anything, or has a batch that is spoiled, and the leader
// goes on naming it. What the follower does not give the leader has.
func TestBadFollower(t *testing.T) {
	t.Parallel()
	refuses := func(e *kerr.Error) func(*kmsg.FetchResponseTopicPartition) {
		return func(p *kmsg.FetchResponseTopicPartition) { p.ErrorCode = e.Code }
	}
	spoiled := testBatch{offsets: offsets(0, 20), afterwards: func(b []byte) { b[len(b)-1]++ }}.bytes()
	for name, answer := range map[string]func(*kmsg.FetchResponseTopicPartition){
		"unknown error": refuses(kerr.UnknownServerError),
		"corrupt":       refuses(kerr.CorruptMessage),
		"disk":          refuses(kerr.KafkaStorageError),
		"spoiled batch": func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches = spoiled },
	} {
		for _, skip := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ts := newTestSystem(t, 1, 1, kfake.NumBrokers(2))
				k := &racks{near: 1 - ts.cluster.LeaderFor(ts.topics[0], 0), answer: answer}
				ts.cluster.SetFollowers(ts.topics[0], 0, []int32{k.near})
				k.control(ts)
				want := ts.put(t, ts.topics[0], 0, 20)
				cfg := ts.config(ts.net.link())
				cfg.Rack, cfg.RequestTimeout, cfg.SkipUndecodable = "near", patience, skip
				r := startRunner(t, cfg)
				eventually(t, "the follower was asked", func() bool { _, served, _ := k.counts(); return served > 0 })
				want = append(want, ts.put(t, ts.topics[0], 20, 20)...)
				eventually(t, "the messages came", func() bool { return r.has(want) })
				if e, gap := r.event(broker.Gap, ""); gap {
					t.Errorf("it was told: %v", e.Err)
				}
			})
		}
	}
}

// TestReplicaIsAskedForAgain: a replica that answers, and lags behind for ever, does not keep a partition for ever.
func TestReplicaIsAskedForAgain(t *testing.T) {
	began := time.Unix(1000, 0)
	p := part{leader: 1, replica: -1}
	for _, step := range []struct {
		after time.Duration
		named int32 // -1: none is
		want  int32
	}{
		{0, -1, 1}, {time.Minute, 2, 2}, {5 * time.Minute, -1, 2}, {6 * time.Minute, -1, 1}, {6 * time.Minute, 2, 2},
		{10 * time.Minute, -1, 2}, {11 * time.Minute, -1, 1}, {20 * time.Minute, -1, 1},
	} {
		now := began.Add(step.after)
		if p.askAgain(now); step.named >= 0 {
			p.follow(step.named, now)
		}
		if got := p.node(); got != step.want {
			t.Errorf("after %v it is fetched from %d, want %d", step.after, got, step.want)
		}
	}
}
