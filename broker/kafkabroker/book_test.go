package kafkabroker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// An outage is a member with messages in its handlers that loses its brokers for longer than its session.
type outage struct {
	ts   *testSystem
	r    *runner
	all  []string
	done map[string]bool // acked before the loss
}

// outageSystem has a session that a busy machine does not end.
func outageSystem(t *testing.T) *testSystem {
	ts := newTestSystem(t, 1, 1)
	ts.lease = 1500 * time.Millisecond
	return ts
}

// startOutage ends when the claim has: of n messages some were acked and committed, more were acked while the brokers were away,
// and the others came too late.
func startOutage(t *testing.T, ts *testSystem, cfg Config, away func()) *outage {
	const n = 16
	o := &outage{ts: ts, done: make(map[string]bool)}
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o.r = &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true,
		out: make(chan broker.Message, 10*n)}
	o.r.open(t)
	o.all = ts.put(t, ts.topics[0], 0, n)
	var out []broker.Message
	for range n {
		out = append(out, <-o.r.out)
	}
	ack := func(ms []broker.Message) {
		for _, m := range ms {
			if err := s.Ack(m.Claim, []uint64{m.Token}); err != nil {
				t.Errorf("an ack says %v", err)
			}
			o.done[string(m.Value)] = true
		}
	}
	ack(out[2:5])
	eventually(t, "three are committed", func() bool { return ts.unsettled(t) == n-3 })
	away()
	ack(out[7:12])
	ack(out[:1])
	<-out[0].Claim.Ended()
	o.r.mu.Lock()
	o.r.hold = false
	clear(o.r.times)
	o.r.mu.Unlock()
	for _, m := range append(out[1:2:2], append(out[5:7:7], out[12:]...)...) {
		if err := s.Ack(m.Claim, []uint64{m.Token}); !errors.Is(err, broker.ErrLost) {
			t.Errorf("an ack after the loss says %v, want ErrLost", err)
		}
	}
	return o
}

// goesOn holds what comes after the outage against what was finished before.
func (o *outage) goesOn(t *testing.T, anew bool) {
	t.Helper()
	var want []string
	for _, v := range o.all {
		if anew || !o.done[v] {
			want = append(want, v)
		}
	}
	want = append(want, o.ts.put(t, o.ts.topics[0], 100, 4)...)
	long(t, "what was not finished came", func() bool { return o.r.has(want) })
	long(t, "all is committed", func() bool { return o.ts.unsettled(t) == 0 })
	for v, n := range o.r.seen() {
		if o.done[v] && !anew {
			t.Errorf("%s came again, which was finished", v)
		} else if n > 1 {
			t.Errorf("%s came %d times", v, n)
		}
	}
}

// TestOutage: the brokers are away for longer than a session, and nobody else has had the partition when they are back. What was
// finished meanwhile is not done again, also where its acks were never committed.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, balancer := range []string{"sticky", "range"} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			ts := outageSystem(t)
			ts.balancer = balancer
			o := startOutage(t, ts, ts.config(ts.net.link()), func() { ts.net.setDown(true) })
			ts.net.setDown(false)
			o.goesOn(t, false)
		})
	}
}

// TestOutageTwice: the brokers are away again before anything new came, and what was finished in the first outage is still known.
func TestOutageTwice(t *testing.T) {
	t.Parallel()
	ts := outageSystem(t)
	o := startOutage(t, ts, ts.config(ts.net.link()), func() { ts.net.setDown(true) })
	o.r.mu.Lock()
	first := slices.IndexFunc(o.r.events, func(e broker.Event) bool { return e.Kind == broker.Assigned })
	claim := o.r.events[first].Claim
	o.r.mu.Unlock()
	o.r.s.Hold(claim, time.Now())
	ts.net.breakAt(keyFetch, 1_000_000)
	ts.net.breakAt(keyOffsetCommit, 1_000_000)
	ts.net.setDown(false)
	claims := func() (n int) {
		o.r.mu.Lock()
		defer o.r.mu.Unlock()
		for _, e := range o.r.events {
			if e.Kind == broker.Assigned {
				n++
			}
		}
		return n
	}
	eventually(t, "it has a claim again", func() bool { return claims() == 2 })
	ts.net.setDown(true)
	eventually(t, "it is lost again", func() bool {
		return len(o.r.s.LagByPartition()) == 0
	})
	ts.net.mu.Lock()
	clear(ts.net.bad)
	ts.net.mu.Unlock()
	ts.net.setDown(false)
	o.goesOn(t, false)
}

// TestOutageNotOurs: what was finished is done again where the group's offset is not what the member left, or the log has other
// messages there by now.
func TestOutageNotOurs(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(*testing.T, *testSystem){
		"offset set by an administrator": func(t *testing.T, ts *testSystem) {
			ts.commit(t, 0, "")
		},
		"log cut off": func(t *testing.T, ts *testSystem) {
			ts.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
				ts.cluster.KeepControl()
				req := r.(*kmsg.OffsetForLeaderEpochRequest)
				a := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
				at, p := kmsg.NewOffsetForLeaderEpochResponseTopic(), kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				at.Topic, p.EndOffset, p.LeaderEpoch = req.Topics[0].Topic, 11, req.Topics[0].Partitions[0].LeaderEpoch
				at.Partitions = append(at.Partitions, p)
				a.Topics = append(a.Topics, at)
				return a, nil, true
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := outageSystem(t)
			o := startOutage(t, ts, ts.config(ts.net.link()), func() { ts.net.setDown(true) })
			// The member counts its session from when it asked, and its broker from when it was asked, which is later. Between the two
			// ends a commit that was put together before the loss is still taken, and what it has does not come again.
			eventually(t, "the group is empty", func() bool { return len(ts.cluster.GroupInfo(testGroup).Members) == 0 })
			meddle(t, ts)
			if name == "log cut off" { // what was committed is believed as ever
				o.all = append(o.all[:2:2], o.all[5:]...)
			}
			ts.net.setDown(false)
			o.goesOn(t, true)
		})
	}
}

// Of a topic that is made anew again and again nothing is remembered but what is of use: the last one's.
func TestBooksOfTopicsThatAreGone(t *testing.T) {
	const times = 100
	var known books
	part := func(n int) *part {
		p := &part{partitionID: partitionID{"t", 0}, id: topicID{byte(n), 1}, tr: newTracker(progress{}, nil, 64)}
		p.commitMemory = commitMemory{known: []position{{offset: 1, metadata: "ours"}}, room: metadataLimit}
		return p
	}
	other := part(0)
	other.no = 1
	known.keep(other)
	for n := range times {
		known.end(partitionID{"t", 0}) // a claim begins
		known.keep(part(n))            // and is lost, for the topic is another one
	}
	if len(known.logs) != 2 || known.logs[part(times-1).logID()] == nil || known.logs[other.logID()] == nil {
		t.Errorf("%d books are kept, want that of the last topic and the other partition's", len(known.logs))
	}
}

// TestBooksOfNamesThatAreGone: topics come and go, under names that never come again. A session was over while each of them was
// there, so that it was lost and never began again, or it was to begin anew and did not. Nothing is remembered of it.
func TestBooksOfNamesThatAreGone(t *testing.T) {
	cfg, known := Config{Pattern: "t.*"}.withDefaults(), &books{}
	h, at := newHoldings(&cfg, newBells(), kit.NewEventQueue(), known), newAtlas(&cfg)
	at.apart = 0 // looks follow each other at once here
	for n := range 100 {
		id, name := topicID{byte(n), 1}, fmt.Sprint("t", n)
		p := &part{partitionID: partitionID{name, 0}, id: id, tr: newTracker(progress{}, nil, 64)}
		p.commitMemory = commitMemory{known: []position{{offset: 1, metadata: "ours"}}, room: metadataLimit}
		look := func(topics map[string]topic) {
			v := at.learn(at.begin(), topics, true)
			h.surveyed(v.topics, at.lacks)
		}
		look(map[string]topic{name: {name: name, id: id, leaders: []int32{0}}})
		known.keep(p)
		h.changed(change{kind: lost, parts: []partitionID{{name, 1}}, err: errMadeAgain})
		look(map[string]topic{name: {name: name, id: id, leaders: []int32{0, 0}}})
		if len(known.logs) != 1 || len(known.left) != 1 || len(h.roster.resets) != 1 {
			t.Fatalf("what is there is forgotten: %d, %d, %d", len(known.logs), len(known.left), len(h.roster.resets))
		}
		for range missingLooks {
			look(map[string]topic{})
		}
	}
	if n, left, resets := len(known.logs), len(known.left), len(h.roster.resets); n+left+resets > 0 {
		t.Errorf("%d books, %d commits and %d reasons to begin anew are kept of topics that are gone", n, left, resets)
	}
}
