package kafkabroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestForgotten: the group is gone, with all that it had committed, while a member of it cannot reach its brokers: they lost it,
// or somebody deleted it. The member goes on where it stood, wherever it would begin as a new one: neither is skipped what was
// written and not handled, nor is done again what was finished. And it says so.
func TestForgotten(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]Start{
		"earliest": {At: "earliest"}, "latest": {At: "latest"}, "none": {At: "none"},
		"time": {At: "time", Time: time.Now().Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testForgotten(t, outageSystem(t), start)
		})
	}
}

// TestForgottenReal is the same on Apache Kafka, for each protocol.
func TestForgottenReal(t *testing.T) {
	for _, protocol := range []string{"sticky", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			ts := realSystem(t, brokertest.Setup{Topics: 1, Partitions: 1}, protocol)
			testForgotten(t, ts, Start{At: "latest"})
		})
	}
}

func testForgotten(t *testing.T, ts *testSystem, start Start) {
	ts.commit(t, 0, "")
	cfg := ts.config(ts.net.link())
	cfg.Start = start
	o := startOutage(t, ts, cfg, func() { ts.net.setDown(true) })
	ts.deleteGroup(t)
	ts.net.setDown(false)
	o.goesOn(t, false)
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	told := 0
	for _, e := range o.r.events {
		if e.Kind == broker.Warning && errors.Is(e.Err, errForgotten) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it was told %d times", told)
	}
}

// deleteGroup deletes the group when its last member's session is over.
func (ts *testSystem) deleteGroup(t *testing.T) {
	t.Helper()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{ts.group}
	eventually(t, "the group is deleted", func() bool {
		a, err := req.RequestWith(context.Background(), ts.admin)
		return err == nil && a.Groups[0].ErrorCode == 0
	})
}

// TestForgottenOfAnother: of a group that has forgotten what was committed, nobody here knows how far another member was. Its
// partitions begin as a new group's, and are told of as a gap; those of other topics, and those that are new, are not.
func TestForgottenOfAnother(t *testing.T) {
	id := topicID{1, 2, 3}
	at := func(no int32, id topicID) *start {
		b := newStart(partitionID{"t", no}, nil)
		b.id = id
		return b
	}
	var x books
	if _, _, is := x.forgotten(at(1, id), position{offset: -1}); is {
		t.Error("forgotten by a group in which nothing was ever lost to us")
	}
	p := &part{partitionID: partitionID{"t", 0}, id: id, tr: newTracker(progress{}, nil, 64)}
	p.commitMemory = commitMemory{known: []position{{offset: 7, metadata: "ours"}}, epoch: 4, room: metadataLimit}
	x.keep(p)
	added, oursAdded := at(2, id), at(0, id)
	added.first, oursAdded.first = 3, 1
	for name, tc := range map[string]struct {
		b        *start
		at       int64
		ours, is bool
	}{
		"ours":              {at(0, id), -1, true, true},
		"another's":         {at(1, id), -1, false, true},
		"ours, added later": {oursAdded, -1, true, true},
		"new":               {added, -1, false, false},
		"committed":         {at(1, id), 5, false, false},
		"of another topic":  {at(0, topicID{9}), -1, false, false},
		"without topic ids": {at(0, topicID{}), -1, false, false},
	} {
		was, ours, is := x.forgotten(tc.b, position{offset: tc.at})
		if ours != tc.ours || is != tc.is || ours && was != (position{offset: 7, metadata: "ours", after: 5}) {
			t.Errorf("%s: %+v, ours %v, forgotten %v", name, was, ours, is)
		}
	}
	x.end(partitionID{"t", 0})
	if _, _, is := x.forgotten(at(1, id), position{offset: -1}); !is {
		t.Error("what the group has forgotten is forgotten when our own partition has begun")
	}
}
