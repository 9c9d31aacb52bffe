package kafkabroker

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// A sweepWatch notes what is sent about transactions that have outputs.
type sweepWatch struct {
	mu    sync.Mutex
	added int   // partitions that AddPartitionsToTxn had since the last Produce
	swept []int // the same, at each Produce
}

func watchSweeps(ts *testSystem) *sweepWatch {
	w := &sweepWatch{}
	for _, key := range []int16{keyAddPartitionsToTxn, keyProduce} {
		ts.cluster.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) {
			ts.cluster.KeepControl()
			w.mu.Lock()
			defer w.mu.Unlock()
			switch r := req.(type) {
			case *kmsg.AddPartitionsToTxnRequest:
				for _, t := range r.Topics {
					w.added += len(t.Partitions)
				}
			case *kmsg.ProduceRequest:
				if r.TransactionID != nil {
					w.swept, w.added = append(w.swept, w.added), 0
				}
			}
			return nil, nil, false
		})
	}
	return w
}

// TestSweep: a transaction is aborted, and what it wrote may be open still where its coordinator knew of no leader. Before
// outputs are written there again, the partition is aborted once more: as part of a transaction that has nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, ofOne, "transactional")
	ts.agreeOn(t, 2) // where no transaction announces its partitions
	w := watchSweeps(ts)
	x := ts.transactor(t)
	for i, as := range []memberID{{generation: -1}, {member: "nobody", generation: 3}, {generation: -1}, {generation: -1}} {
		err := ts.commitAs(t, x, as)
		if refused := replaced(codeOf(err)); refused != (as.member != "") || err != nil && !refused {
			t.Fatalf("transaction %d: %v", i, err)
		}
	}
	if want := []int{0, 0, 1, 0}; !slices.Equal(w.swept, want) {
		t.Errorf("before each transaction's outputs so many partitions were aborted once more: %v, want %v", w.swept, want)
	}
	if n := len(ts.stored(t, ts.outputs)); n != 3 {
		t.Errorf("%d outputs are stored", n)
	}
}

// TestSweepOfAStaticMember: its predecessor had its id, so that what that has left over is aborted once more.
func TestSweepOfAStaticMember(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, ofOne, "transactional")
	ts.agreeOn(t, 2)
	w := watchSweeps(ts)
	x := ts.transactor(t)
	x.left = inherited()
	for range 2 {
		if err := ts.commitAs(t, x, memberID{generation: -1}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{1, 0}; !slices.Equal(w.swept, want) {
		t.Errorf("before each transaction's outputs so many partitions were aborted once more: %v, want %v", w.swept, want)
	}
}

// commitAs has a transaction with one output.
func (ts *testSystem) commitAs(t *testing.T, x *transactor, as memberID) error {
	cs := []*commitment{{partitionID: partitionID{ts.topics[0], 0}, offset: 5}}
	return x.commit(t.Context(), func() bool { return true }, map[memberID][]*commitment{as: cs},
		[]*broker.Outgoing{{Topic: ts.outputs, Value: []byte("made")}})
}

type reigns = map[partitionID]reign

// TestSwept: what is aborted for sure is what has had a leader all the time.
func TestSwept(t *testing.T) {
	in, groups := partitionID{"out", 0}, partitionID{groupsTopic, 0}
	to := [][]*outBatch{{{partitionID: in}}}
	for name, tc := range map[string]struct {
		led           []partitionID
		before, after reigns
		want          kafka.Error
		parts         int
		group         bool
	}{
		"kept":            {[]partitionID{in}, reigns{in: {1, 4, 1}}, reigns{in: {1, 4, 1}}, 0, 0, false},
		"without one":     {nil, reigns{in: {-1, 5, 1}}, reigns{in: {-1, 5, 1}}, kafka.LeaderNotAvailable, 1, false},
		"lost":            {[]partitionID{in}, reigns{in: {1, 4, 1}}, reigns{in: {-1, 5, 1}}, kafka.LeaderNotAvailable, 1, false},
		"back again":      {[]partitionID{in}, reigns{in: {1, 4, 1}}, reigns{in: {1, 6, 1}}, kafka.LeaderNotAvailable, 1, false},
		"told by another": {[]partitionID{in}, reigns{in: {1, 4, 1}}, reigns{in: {1, 4, 2}}, kafka.LeaderNotAvailable, 1, false},
		"the group's, kept": {[]partitionID{in}, reigns{in: {1, 4, 1}, groups: {1, 2, 1}},
			reigns{in: {1, 4, 1}, groups: {1, 2, 1}}, 0, 0, false},
		"the group's, moved": {[]partitionID{in}, reigns{in: {1, 4, 1}, groups: {1, 2, 1}},
			reigns{in: {1, 4, 1}, groups: {2, 3, 1}}, kafka.GroupCoordinatorNotAvailable, 0, true},
		"the group's, without one": {[]partitionID{in}, reigns{in: {1, 4, 1}, groups: {-1, 2, 1}},
			reigns{in: {1, 4, 1}, groups: {-1, 2, 1}}, kafka.GroupCoordinatorNotAvailable, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := &transactor{k: &coordinator{group: "g"}, dest: newDestinations(nil, false)}
			x.left.begin(to)
			if err := x.swept(tc.led, tc.before, tc.after, to); codeOf(err) != tc.want {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if len(x.left.parts) != tc.parts || x.left.group != tc.group {
				t.Errorf("left over: %v, the group %v", x.left.parts, x.left.group)
			}
		})
	}
}

// TestLeftoversOfTopicsThatAreGone: transactions were aborted that went to topics which came and went. When there are many of
// those, nothing is kept of them, and what is left over in the one that is there was aborted once more.
func TestLeftoversOfTopicsThatAreGone(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, ofOne, "transactional")
	ts.agreeOn(t, 2)
	x := ts.transactor(t)
	x.left = inherited()
	for i := range 2 * mostLearned {
		to := [][]*outBatch{{{partitionID: partitionID{fmt.Sprint("gone-", i%20), int32(i)}}}}
		x.left.meet(to)
		x.left.begin(to)
	}
	for range 2 {
		if err := ts.commitAs(t, x, memberID{generation: -1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(x.left.parts); n > 0 {
		t.Errorf("%d partitions are kept", n)
	}
	if _, met := x.left.met.Get(partitionID{"gone-0", 0}); met {
		t.Error("where we wrote is kept for ever")
	}
	if n := len(ts.stored(t, ts.outputs)); n != 2 {
		t.Errorf("%d outputs are stored", n)
	}
}

// TestJavaHash: brokers find a group's partition by it.
func TestJavaHash(t *testing.T) {
	for s, want := range map[string]int32{"": 0, "g": 103, "longshore": 146238321, "polygenelubricants": 0} {
		if got := javaHash(s); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}
