package kafkabroker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

func TestResetTime(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	beyond := fmt.Errorf("t/0: %w", errBeyond)
	for name, tc := range map[string]struct {
		cfg  Config
		why  error
		want int64
	}{
		"no position":                {want: timeStart},
		"no position, latest":        {cfg: Config{Start: Start{At: "latest"}}, want: timeEnd},
		"no position, a time":        {cfg: Config{Start: Start{At: "time", Time: at}}, want: at.UnixMilli()},
		"beyond the end":             {cfg: Config{Start: Start{At: "latest"}}, why: beyond, want: timeStart},
		"beyond the end, latest":     {cfg: Config{OutOfRange: "latest"}, why: beyond, want: timeEnd},
		"no position, latest beyond": {cfg: Config{OutOfRange: "latest"}, want: timeStart},
		"made again": {cfg: Config{OutOfRange: "latest", Start: Start{At: "latest"}}, why: errRecreated,
			want: timeStart},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.cfg.withDefaults()
			if got := c.resetTime(tc.why); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestBeyondEnd: a committed offset beyond the log's end is told of, and the policy says where to go on (f31).
func TestBeyondEnd(t *testing.T) {
	for _, policy := range []string{"earliest", "latest", "stop"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) { testBeyondEnd(t, ts, policy) })
		})
	}
}

func testBeyondEnd(t *testing.T, ts *testSystem, policy string) {
	old := ts.put(t, ts.topics[0], 0, 5)
	ts.commit(t, 5000, "")
	cfg := ts.config(ts.net.link())
	cfg.OutOfRange = policy
	r := startRunner(t, cfg)
	if policy == "stop" {
		<-r.end
		if r.err == nil || !strings.Contains(r.err.Error(), ts.topics[0]+"/0: "+errBeyond.Error()+": position 5000, end 5") ||
			strings.Contains(r.err.Error(), "OutOfRange") {
			t.Errorf("Receive returned %v, want the topic, partition, position and end, and no name of a Go field", r.err)
		}
		if len(r.seen()) > 0 {
			t.Errorf("%d messages came", len(r.seen()))
		}
		return
	}
	var gap broker.Event
	eventually(t, "it was told as a Gap", func() bool {
		e, ok := r.event(broker.Gap, errBeyond.Error())
		gap = e
		return ok
	})
	want := ts.put(t, ts.topics[0], 5, 3)
	from := int64(5)
	if policy == "earliest" {
		want, from = append(old, want...), 0
	}
	eventually(t, "the messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if n := len(r.seen()); n != len(want) || gap.From != from || gap.N != -1 {
		t.Errorf("%d messages came, want %d; the gap is %+v", n, len(want), gap)
	}
}

// TestOtherLog: what is committed names another log, as it may where a topic was made again and the group's offsets were kept. It
// is not believed: all of the topic is read, and a Gap says why.
func TestOtherLog(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, testOtherLog)
}

func testOtherLog(t *testing.T, ts *testSystem) {
	ts.lease = lasting // the Gap is told once: a session that ends between the commit of the new start and it has none to tell
	want := ts.put(t, ts.topics[0], 0, 10)
	old := progress{base: 3, log: 12345, done: []span{{5, 8}}}
	ts.commit(t, old.base, old.encode(metadataLimit))
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "all messages came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if e := r.told(t, broker.Gap, errRecreated.Error()); e.From != 0 || e.N != -1 {
		t.Errorf("the gap is %+v, want one that says the topic was made again", e)
	}
}

// TestMovedWithMetadata: a tool has set the group back, or ahead, and has handed on the metadata that stood beside the offset
// before, as one does that reads commits, changes the offset and writes them again. What it says was finished above another
// offset: it is not believed, and all messages from the new offset on are handled.
func TestMovedWithMetadata(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int64{"back": 2, "ahead": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) { testMovedWithMetadata(t, ts, to) })
		})
	}
}

func testMovedWithMetadata(t *testing.T, ts *testSystem, to int64) {
	all := ts.put(t, ts.topics[0], 0, 20)
	was := progress{base: 5, log: topicID(topicIDOf(t, ts.admin, ts.topics[0])).log(), done: []span{{6, 11}}}
	ts.commit(t, to, was.encode(metadataLimit))
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "all messages from there on came", func() bool { return r.has(all[to:]) })
	eventually(t, "all is committed", func() bool { return ts.progress(t, ts.topics[0])[0].committed == 20 })
	if n := len(r.seen()); n != len(all[to:]) {
		t.Errorf("%d messages came, want %d", n, len(all[to:]))
	}
}

// TestTrimmed: where retention has passed the committed offset, the number of messages that nobody handled is told exactly; what
// was finished above the offset is not among them (f30). With stop it ends Receive.
func TestTrimmed(t *testing.T) {
	for _, policy := range []string{"earliest", "latest", "stop"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			onEachProtocol(t, 1, func(t *testing.T, ts *testSystem) { testTrimmed(t, ts, policy) })
		})
	}
}

func testTrimmed(t *testing.T, ts *testSystem, policy string) {
	all := ts.put(t, ts.topics[0], 0, 100)
	done := progress{base: 5, done: []span{{8, 10}, {53, 60}}}
	ts.commit(t, done.base, done.encode(metadataLimit))
	trimTopic(t, ts.admin, ts.topics[0], 57)
	cfg := ts.config(ts.net.link())
	cfg.OutOfRange = policy
	r := startRunner(t, cfg)
	if policy == "stop" {
		<-r.end
		if r.err == nil || !errors.Is(r.err, errTrimmed) || !strings.Contains(r.err.Error(), ts.topics[0]+"/0") ||
			!strings.Contains(r.err.Error(), "from 5 to 57") {
			t.Errorf("Receive returned %v, want the topic, partition and offsets", r.err)
		}
		return
	}
	eventually(t, "what is left came", func() bool { return r.has(all[60:]) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if n := len(r.seen()); n != 40 {
		t.Errorf("%d messages came, want 40", n)
	}
	// 5, 6, 7 and 10 up to 52
	if e := r.told(t, broker.Gap, errTrimmed.Error()); e.From != 5 || e.N != 46 {
		t.Errorf("the gap is %+v, want 46 messages from 5", e)
	}
}

// commit writes an offset as an administrator does.
func (ts *testSystem) commit(t testing.TB, offset int64, metadata string) {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = ts.group, -1
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset, rp.Metadata = offset, &metadata
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.Partitions = ts.topics[0], append(rt.Partitions, rp)
	rt.TopicID = topicIDOf(t, ts.admin, ts.topics[0])
	req.Topics = append(req.Topics, rt)
	ask(t, ts.admin, req, func(r *kmsg.OffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
}

// TestOthersBeganWhatIsMadeAgain: a topic is made anew, and another member does what is in it before we have looked. What it
// committed is believed: all of it would be done again.
func TestOthersBeganWhatIsMadeAgain(t *testing.T) {
	t.Parallel()
	onEachProtocol(t, 1, testOthersBegan)
}

func testOthersBegan(t *testing.T, ts *testSystem) {
	ts.lease = lasting
	owner := startRunner(t, ts.config(ts.net.link()))
	old := ts.put(t, ts.topics[0], 0, 5)
	eventually(t, "the old messages came", func() bool { return owner.has(old) })
	cfg := ts.config(ts.net.link())
	cfg.Poll = time.Hour // it looks when it begins, and when it is told to
	late := startRunner(t, cfg)
	times := func(value string) int { return owner.seen()[value] + late.seen()[value] }
	came := func(values []string) bool {
		return !slices.ContainsFunc(values, func(v string) bool { return times(v) == 0 })
	}
	ts.recreate(t, ts.topics[0])
	want := ts.put(t, ts.topics[0], 5, 20)
	eventually(t, "the new messages came", func() bool { return came(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	owner.close()
	more := ts.put(t, ts.topics[0], 25, 5)
	eventually(t, "what came later is read", func() bool { return came(more) })
	eventually(t, "all of that is committed", func() bool { return ts.unsettled(t) == 0 })
	for _, v := range append(want, more...) {
		if n := times(v); n != 1 {
			t.Errorf("%s came %d times", v, n)
		}
	}
}

// TestGapOfWhatIsNotBegun: where a topic made anew begins was committed, and then the partition was lost before its claim. Who
// has it next knows of no other topic, so it is told here.
func TestGapOfWhatIsNotBegun(t *testing.T) {
	cfg := Config{}.withDefaults()
	events := kit.NewEventQueue()
	var said []broker.Event
	events.Observe(func(e broker.Event) { said = append(said, e) })
	h := newHoldings(&cfg, newBells(), events, &books{})
	h.open(broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}})
	id := partitionID{"orders", 1}
	h.changed(change{kind: assigned, parts: []partitionID{id}})
	b := h.follow(time.Now()).lookUp[0]
	b.gap = errRecreated
	h.changed(change{kind: lost, parts: []partitionID{id}, err: broker.ErrLost})
	h.lookedUp(b) // it is committed
	for _, b := range h.follow(time.Now()).open {
		if h.introduce(b, 1) != nil {
			t.Error("it begins, though it was lost")
		}
	}
	events.Tell()
	if len(said) != 1 || said[0].Kind != broker.Gap || said[0].N != -1 || !errors.Is(said[0].Err, errRecreated) ||
		!strings.Contains(said[0].Err.Error(), "orders/1") {
		t.Errorf("told %v, want the gap", said)
	}
}
