package kafkabroker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestUnserved: a partition has no leader, or its leader cannot read it: the only disk that has it is full; or that one's answers
// leave it out, for the broker and we do not agree on what was asked. The brokers answer,
// and other partitions go on, so that nothing else tells. It is told by its name and with why, and again with each doubling of
// the time; not of an election, and anew where it was served meanwhile, or nobody asked.
func TestUnserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}.withDefaults()
		events := kit.NewEventQueue()
		var said []error
		events.Observe(func(e broker.Event) { said = append(said, e.Err) })
		h := newHoldings(&cfg, newBells(), events, &books{})
		h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
		p := h.place("orders", 1)
		stand := func(leader int32, answer error, d time.Duration) (told int) {
			t.Helper()
			said = nil
			for over := time.Now().Add(d); time.Now().Before(over); time.Sleep(time.Second) {
				h.surveyed(map[string]topic{"orders": {leaders: []int32{1, leader}}}, func(partitionID, topicID) bool { return false })
				for _, f := range h.plan(time.Now()) {
					got := []fetched{{partitionID: p.partitionID, stable: -1, preferred: -1, err: answer}}
					if answer == errLeftOut {
						got = nil
					}
					h.arrived(f, got, nil, time.Now())
				}
			}
			events.Tell()
			return len(said)
		}
		for _, tc := range []struct {
			leader int32
			err    error
		}{{-1, kafka.LeaderNotAvailable}, {2, kafka.KafkaStorageError}, {2, errLeftOut}} {
			if n := stand(2, nil, time.Hour); n > 0 {
				t.Errorf("%d warnings of one that is served: %v", n, said)
			}
			if n := stand(tc.leader, tc.err, 50*time.Second); n > 0 {
				t.Errorf("%d warnings of what may be an election: %v", n, said)
			}
			want := "orders/1, for 1m0s: " + tc.err.Error()
			if n := stand(tc.leader, tc.err, 5*time.Minute); n != 3 || !strings.Contains(said[0].Error(), want) {
				t.Errorf("%d warnings, want 3, after 1, 2 and 4 minutes: %v", n, said)
			}
			if n := stand(2, nil, time.Minute) + stand(tc.leader, tc.err, 50*time.Second); n > 0 {
				t.Errorf("%d warnings of what began anew: %v", n, said)
			}
			time.Sleep(time.Minute)
			if n := stand(tc.leader, tc.err, 50*time.Second); n > 0 {
				t.Errorf("%d warnings of a minute in which nobody asked: %v", n, said)
			}
		}
	})
}

// TestUnservedIsAskedSeldom: a partition whose broker says again and again that it is not the leader, or says nothing of it, is
// asked for, and looked for, less and less often, down to once a second.
func TestUnservedIsAskedSeldom(t *testing.T) {
	// Of an answer that has something for another one nobody can say that it came at once and brought nothing.
	neighbour := fetched{partitionID: partitionID{"orders", 0}, records: testBatch{offsets: []int64{0}}.bytes()}
	elsewhere := fetched{partitionID: partitionID{"orders", 1}, stable: -1, preferred: -1, err: kafka.NotLeaderForPartition}
	for name, answer := range map[string][]fetched{"elsewhere": {elsewhere, neighbour}, "left out": {neighbour}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testUnservedIsAskedSeldom(t, answer) })
		})
	}
}

func testUnservedIsAskedSeldom(t *testing.T, answer []fetched) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
	h.place("orders", 1)
	asked := func(d time.Duration) (n int) {
		for over := time.Now().Add(d); time.Now().Before(over); time.Sleep(10 * time.Millisecond) {
			h.surveyed(map[string]topic{"orders": {leaders: []int32{1, 2}}}, func(partitionID, topicID) bool { return false })
			for _, f := range h.plan(time.Now()) {
				n++
				h.arrived(f, answer, nil, time.Now())
			}
		}
		return n
	}
	if n := asked(time.Second); n < 5 {
		t.Errorf("asked %d times in the second of an election, want 5 or more", n)
	}
	asked(9 * time.Second)
	if n := asked(time.Minute); n < 50 || n > 70 {
		t.Errorf("asked %d times a minute, want once a second", n)
	}
}

// TestUnservedBeginning: the same of a partition that is to begin, however often it is looked for anew.
func TestUnservedBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := kit.NewEventQueue()
		var said []error
		events.Observe(func(e broker.Event) { said = append(said, e.Err) })
		x := starter{note: contact{events: events}, bells: newBells()}
		bs := []*start{newStart(partitionID{"orders", 1}, nil)}
		for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(time.Second) {
			if !x.answers(bs, kafka.KafkaStorageError, &openEnded{limit: time.Hour}) {
				t.Fatal("it is no answer")
			}
		}
		events.Tell()
		want := "orders/1, for 1m0s: " + error(kafka.KafkaStorageError).Error()
		if len(said) != 3 || !strings.Contains(said[0].Error(), want) {
			t.Errorf("%d warnings, want 3, after 1, 2 and 4 minutes: %v", len(said), said)
		}
	})
}

// TestUndecidedBeginning: what a coordinator that stays behind keeps from its beginning is told, and looked for once a second.
func TestUndecidedBeginning(t *testing.T) {
	other := partitionID{"orders", 1}
	disputed := newStart(other, nil)
	disputed.id, disputed.progress.log = topicID{1}, topicID{2}.log()
	cfg := Config{Topics: []string{"orders"}}.withDefaults()
	a := newAtlas(&cfg)
	a.learn(a.begin(), map[string]topic{"orders": {id: topicID{2}, leaders: []int32{1, 1}}}, false)
	for name, tc := range map[string]struct {
		b   *start
		why func(x *starter, b *start) error
	}{
		"what is committed is of another topic": {disputed, func(*starter, *start) error { return errDisputed }},
		"the group assigns another topic": {newStart(other, nil), func(x *starter, b *start) error {
			_, _, err := x.place([]*start{b})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := kit.NewEventQueue()
				var said []error
				events.Observe(func(e broker.Event) { said = append(said, e.Err) })
				x := starter{note: contact{events: events}, bells: newBells(), atlas: a, m: &behind{}}
				b, looks := tc.b, 0
				for began := time.Now(); time.Since(began) < 5*time.Minute; looks++ {
					if !x.answers([]*start{b}, tc.why(&x, b), &openEnded{limit: time.Hour}) {
						t.Fatal("it is no answer")
					}
					time.Sleep(rest([]*start{b}, time.Now()))
				}
				events.Tell()
				if len(said) != 3 || !strings.Contains(said[0].Error(), "orders/1, for 1m0") {
					t.Errorf("%d warnings, want 3, after 1, 2 and 4 minutes: %v", len(said), said)
				}
				if looks > 400 {
					t.Errorf("%d looks in 5 minutes, want about one a second", looks)
				}
				if got := rest([]*start{b, newStart(partitionID{"orders", 2}, nil)}, time.Now()); got != retryWait {
					t.Errorf("another one waits for %v, want %v", got, retryWait)
				}
			})
		})
	}
}

// behind is a membership of a group that has not heard that a topic was made anew.
type behind struct{ membership }

func (*behind) assigns(partitionID, topicID) bool { return false }
