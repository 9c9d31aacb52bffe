package kafkabroker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A mortal is a process whose handler ends it at one message.
type mortal struct {
	poison  string
	slow    string   // is not finished where others are beside it
	acked   []string // by any process
	letters []broker.Message
	deaths  int
	beside  int // how often a message of a careful process was not alone
}

// live runs one process until it dies or end says that all is done.
func (x *mortal) live(t *testing.T, ts *testSystem, careful bool, end func() bool) {
	t.Helper()
	l := ts.net.link()
	cfg := ts.config(l)
	cfg.CrashLimit = 3
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 100)}
	r.open(t)
	for {
		select {
		case m := <-r.out:
			if string(m.Value) == x.poison && m.Crashes == 0 {
				if careful {
					x.alone(r, m)
				}
				if !careful {
					eventually(t, "that it has begun is committed", func() bool { return ts.starts() == x.deaths+1 })
				}
				x.deaths++
				r.kill(l)
				return
			}
			x.handle(t, r, m, careful)
		case <-time.After(20 * time.Millisecond):
			if end() {
				r.close()
				return
			}
		}
	}
}

func (x *mortal) handle(t *testing.T, r *runner, m broker.Message, careful bool) {
	if careful && len(x.letters) == 0 {
		x.alone(r, m)
	} else if string(m.Value) == x.slow && !careful {
		return
	}
	if m.Crashes > 0 {
		x.letters = append(x.letters, m)
	} else {
		x.acked = append(x.acked, string(m.Value))
	}
	if err := r.s.Ack(m.Claim, []uint64{m.Token}); err != nil && !errors.Is(err, broker.ErrLost) {
		t.Errorf("ack: %v", err)
	}
}

// alone waits for whatever comes beside a message of the partition above whose offset processes ended. In another one they may
// not have come to begin: its messages may be beside each other.
func (x *mortal) alone(r *runner, m broker.Message) {
	if m.Partition != 0 {
		return
	}
	time.Sleep(5 * time.Millisecond)
	if len(r.out) > 0 {
		x.beside++
	}
}

// TestCrashLimit: a message ends each process that handles it. After three of them what was unfinished above the offset runs
// alone; what was alone when the fourth process ended is handed out with the number, and nothing else is.
func TestCrashLimit(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 2, 1)
	ts.lease = time.Second // four times it is waited for
	all := ts.put(t, ts.topics[0], 0, 20)
	x := &mortal{slow: all[0], poison: all[10]} // of partition 0
	for n := 0; n < 8 && len(x.letters) == 0; n++ {
		x.live(t, ts, n >= 3, func() bool { return len(x.letters) > 0 && ts.unsettled(t) == 0 })
	}
	if x.deaths != 4 || x.beside > 0 {
		t.Errorf("%d processes ended, want 4; %d times something was beside what should be alone", x.deaths, x.beside)
	}
	if len(x.letters) != 1 || string(x.letters[0].Value) != x.poison || x.letters[0].Crashes < 3 {
		t.Errorf("given up: %d messages, %+v", len(x.letters), x.letters)
	}
	for _, v := range all {
		if v != x.poison && !slices.Contains(x.acked, v) {
			t.Errorf("%s was not handled", v)
		}
	}
	if n := ts.unsettled(t); n > 0 {
		t.Errorf("%d messages are unsettled", n)
	}
}

// TestCrashLimitGoodbye: processes that end well are no crashes, and one that only loses its session is none either, for it
// lives.
func TestCrashLimitGoodbye(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	ts.lease = time.Second
	var p progress
	p.starts = 3
	all := ts.put(t, ts.topics[0], 0, 3)
	ts.commit(t, 0, p.encode(metadataLimit))
	for range 3 {
		cfg := ts.config(ts.net.link())
		cfg.CrashLimit = 3
		s, err := NewSource(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{t: t, s: s, end: make(chan struct{}), times: make(map[string]int), hold: true, out: make(chan broker.Message, 100)}
		r.open(t)
		for i := range 3 {
			m := <-r.out
			if string(m.Value) != all[0] || m.Crashes != 0 {
				t.Errorf("got %s, Crashes %d", m.Value, m.Crashes)
			}
			if i == 2 {
				break
			}
			ts.net.setDown(true)
			<-m.Claim.Ended()
			ts.net.setDown(false)
			_ = s.Ack(m.Claim, []uint64{m.Token}) // says ErrLost, and lets it come again
		}
		r.close()
	}
}

// TestSoloThatDoesNotCome: a message is to run alone, and does not come: nobody leads its partition, or it is gone from the log.
// The other partitions do not wait for it.
func TestSoloThatDoesNotCome(t *testing.T) {
	for name, lose := range map[string]func(x *soloSystem){
		"its leader is another": func(x *soloSystem) { x.land(fetched{err: kafka.NotLeaderForPartition}) },
		"it has no leader": func(x *soloSystem) {
			x.h.surveyed(map[string]topic{"orders": {leaders: []int32{-1, 2}}}, func(partitionID, topicID) bool { return false })
		},
		"it is gone": func(x *soloSystem) { x.land(fetched{high: 10, stable: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newSoloSystem()
				x.land(fetched{records: testBatch{offsets: []int64{0}}.bytes(), high: 10, stable: -1})
				if from, n := x.receive(); from != x.p || n > 0 {
					t.Fatalf("%d messages are handed out before a commit says that they run alone", n)
				}
				x.commit()
				x.receive() // which waits from here on
				lose(x)
				x.land(fetched{err: kafka.NotLeaderForPartition}) // where it is asked for still
				for range 3 {
					if from, n := x.receive(); from == x.q && n == 1 {
						return
					}
					x.commit()
				}
				t.Error("the other partition waits")
			})
		})
	}
}

// TestSoloThatIsNotCommitted: no commit can say of a partition what runs alone, or runs alone no longer, for a right to its topic
// is missing, or the topic was deleted. The others do not wait for it.
func TestSoloThatIsNotCommitted(t *testing.T) {
	for name, why := range map[string]kafka.Error{
		"no right": kafka.TopicAuthorizationFailed, "deleted": kafka.UnknownTopicOrPartition,
	} {
		for _, ran := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ran %v", name, ran), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testSoloNotCommitted(t, why, ran) })
			})
		}
	}
}

// testSoloNotCommitted: ran says that the message that runs alone has done so, and that is what is not committed.
func testSoloNotCommitted(t *testing.T, why kafka.Error, ran bool) {
	x := newSoloSystem()
	come := fetched{records: testBatch{offsets: []int64{0}}.bytes(), high: 10, stable: -1}
	x.land(come)
	x.receive()
	if ran {
		x.commit()
		x.land(come)
		if from, n := x.receive(); from != x.p || n != 1 {
			t.Fatal("it does not run")
		}
		if err := x.h.ack(x.p, []uint64{token(0, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		ds := x.h.collect(false, nil)
		for _, d := range ds {
			if d.p == x.p {
				d.c.err = why
			}
		}
		x.h.answered(ds, func(partitionID, topicID) bool { return why == kafka.UnknownTopicOrPartition })
		x.land(fetched{err: why})
		if from, n := x.receive(); from == x.q && n == 1 {
			return
		}
	}
	t.Error("the other partition waits")
}

// TestSoloHasRoom: a message that is to run alone is fetched again after the commit that says so. What is prefetched of others
// gives way to it where it has all the budget, for they hand nothing out before.
func TestSoloHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSoloSystem()
		come := fetched{records: testBatch{offsets: []int64{0}}.bytes(), high: 10, stable: -1}
		x.land(come)
		x.h.setBudget(broker.Budget{Messages: 10, Bytes: 1})
		x.receive()
		for range 5 {
			x.commit()
			x.land(come)
			if from, n := x.receive(); n == 1 {
				if from != x.p {
					t.Error("another partition handed out first")
				}
				return
			}
		}
		t.Error("nothing is handed out")
	})
}

// A soloSystem has holdings with two partitions, of which p is one whose messages run alone, and q has one message.
type soloSystem struct {
	h    *holdings
	p, q *part
}

func newSoloSystem() *soloSystem {
	cfg := Config{CrashLimit: 1}.withDefaults()
	h := newHoldings(&cfg, newBells(), kit.NewEventQueue(), &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 30}})
	x := &soloSystem{h: h, p: h.place("orders", 0), q: h.place("orders", 1)}
	h.surveyed(map[string]topic{"orders": {leaders: []int32{1, 2}}}, func(partitionID, topicID) bool { return false })
	h.solo.inspect(x.p, progress{starts: 1}, 10)
	return x
}

// land sends what is to be fetched, and has it come back: with that of p.
func (x *soloSystem) land(of fetched) {
	for _, f := range x.h.plan(time.Now()) {
		a := fetched{records: testBatch{offsets: []int64{0}}.bytes(), high: 1, stable: -1}
		if f.parts[0] == x.p {
			a = of
		}
		a.partitionID, a.preferred = f.parts[0].partitionID, -1
		x.h.arrived(f, []fetched{a}, nil, time.Now())
	}
}

// receive is one look of Receive, where it is woken, and the hand-out that it comes to.
func (x *soloSystem) receive() (from *part, n int) {
	if !heard(x.h.bells.wake) {
		return nil, 0
	}
	dst := make([]broker.Message, 4)
	l, err := x.h.lend(len(dst), time.Now(), false)
	if err != nil || l.p == nil {
		return nil, 0
	}
	l.decode(dst)
	n, _ = x.h.take(&l, dst, time.Now())
	return l.p, n
}

// commit has what is to be committed taken.
func (x *soloSystem) commit() {
	x.h.answered(x.h.collect(false, nil), func(partitionID, topicID) bool { return false })
}
