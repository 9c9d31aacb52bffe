package kafkabroker

import (
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// TestRefusedCommitIsTriedSeldom: what brokers refuse of one partition, again and again, is tried less and less often, down to
// once a second, and by itself: no other one is committed more often for it. It is the same with a last commit, for which the
// group waits.
func TestRefusedCommitIsTriedSeldom(t *testing.T) {
	for name, last := range map[string]bool{"open": false, "ending": true} {
		for _, why := range []kafka.Error{kafka.TopicAuthorizationFailed, kafka.UnknownTopicOrPartition} {
			t.Run(name+"/"+why.Title(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testRefusedCommitIsTriedSeldom(t, last, why) })
			})
		}
	}
}

func testRefusedCommitIsTriedSeldom(t *testing.T, last bool, why kafka.Error) {
	cfg := Config{}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
	p := h.place("orders", 0)
	q := h.place("invoices", 0)
	if last {
		h.roster.drain(p, time.Now())
		for _, e := range h.over(time.Now()) {
			h.ended(e)
		}
	}
	var err error
	tries := func(d time.Duration) (n, again int) {
		for over := time.Now().Add(d); time.Now().Before(over); time.Sleep(10 * time.Millisecond) {
			q.tr.changed()
			ds := h.collect(false, nil)
			for _, d := range ds {
				if d.p == p {
					d.c.err = err
					n++
				}
			}
			if h.answered(ds, func(partitionID, topicID) bool { return false }).again {
				again++
			}
			if q.tr.dirty() {
				t.Fatal("the other partition waits")
			}
		}
		return n, again
	}
	err = why
	if n, _ := tries(time.Second); n < 4 {
		t.Errorf("tried %d times in the first second, want 4 or more", n)
	}
	tries(9 * time.Second)
	if n, again := tries(time.Minute); n < 50 || n > 70 || again > 0 {
		t.Errorf("tried %d times a minute, want once a second; all is to be tried soon again %d times", n, again)
	}
	err = nil
	if tries(2 * time.Second); p.tr.dirty() {
		t.Error("what is taken by now is not committed")
	}
}

// TestManyRefusedCommits: many partitions are refused, each since another moment. They are tried again together, and no more
// often than one would be at first.
func TestManyRefusedCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}.withDefaults()
		h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
		h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
		commits := 0
		for tick := range 6000 {
			if tick < 100 {
				h.place("orders", int32(tick))
			}
			if b := h.due(); b.waited || tick < 100 {
				commits++
				ds := h.collect(false, nil)
				for _, d := range ds {
					d.c.err = kafka.TopicAuthorizationFailed
				}
				h.answered(ds, func(partitionID, topicID) bool { return false })
			} else if !b.refused || b.again.IsZero() || time.Until(b.again) > longestStay {
				t.Fatalf("tick %d: they are tried again at %v", tick, b.again)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if commits > 100+6000/5 {
			t.Errorf("%d commits in a minute", commits)
		}
	})
}
