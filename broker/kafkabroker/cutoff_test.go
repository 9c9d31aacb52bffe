package kafkabroker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
)

// An epochLog is the log of partition 0, whose batches have a message each, as its leader has it: the fake knows nothing of
// Fetch's LastFetchedEpoch.
type epochLog struct {
	mu     sync.Mutex
	topic  string
	id     topicID
	raw    [][]byte // by offset
	epochs []int32  // of each
	asked  []wish   // fetches
	behind int64    // if not 0: fetches are answered as a follower does that has so much of the log
	late   int      // so many answers of it
	again  func()   // if not nil: called once, under the lock, before a fetch at 6 is answered
}

// put writes messages of an epoch behind the log's first ones, and returns their values. What is there is cut off.
func (l *epochLog) put(at, n int, epoch int32, name string) (values []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(at, n, epoch, name)
}

// write is put under the lock.
func (l *epochLog) write(at, n int, epoch int32, name string) (values []string) {
	l.raw, l.epochs = l.raw[:at], l.epochs[:at]
	for o := at; o < at+n; o++ {
		v := fmt.Sprint(name, o)
		b := testBatch{base: int64(o), offsets: []int64{int64(o)}, value: func(int64) []byte { return []byte(v) },
			afterwards: func(b []byte) { binary.BigEndian.PutUint32(b[atEpoch:], uint32(epoch)) }}
		values, l.raw, l.epochs = append(values, v), append(l.raw, b.bytes()), append(l.epochs, epoch)
	}
	return values
}

// end is LeaderEpochFileCache.endOffsetFor, with the log's end.
func (l *epochLog) end(epoch int32, end int64) (of int32, offset int64) {
	epochs := l.epochs[:end]
	if len(epochs) > 0 && epochs[len(epochs)-1] == epoch {
		return epoch, end
	}
	above := slices.IndexFunc(epochs, func(e int32) bool { return e > epoch })
	switch {
	case above < 0:
		return -1, -1
	case above == 0:
		return epoch, 0
	}
	return epochs[above-1], int64(above)
}

func (l *epochLog) serve(ts *testSystem) {
	l.topic, l.id = ts.topics[0], topicID(ts.cluster.TopicInfo(ts.topics[0]).TopicID)
	ts.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if ts := req.(*kmsg.FetchRequest).Topics; len(ts) == 0 || ts[0].Topic != l.topic && topicID(ts[0].TopicID) != l.id {
			return nil, nil, false
		}
		p, n := l.fetch(req.(*kmsg.FetchRequest).Topics[0].Partitions[0])
		if n == 0 {
			time.Sleep(10 * time.Millisecond) // all wait: the fake locks up where two requests sleep by SleepControl
		}
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID, t.Partitions = l.topic, l.id, append(t.Partitions, p)
		res := req.ResponseKind().(*kmsg.FetchResponse)
		res.Topics = append(res.Topics, t)
		return res, nil, true
	})
	ts.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		l.mu.Lock()
		defer l.mu.Unlock()
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		asked := req.(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Partitions[0].LeaderEpoch
		p.LeaderEpoch, p.EndOffset = l.end(asked, int64(len(l.raw)))
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic, t.Partitions = l.topic, append(t.Partitions, p)
		res := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		res.Topics = append(res.Topics, t)
		return res, nil, true
	})
	ts.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		if req.(*kmsg.ListOffsetsRequest).Topics[0].Topic != l.topic {
			return nil, nil, false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		p := kmsg.NewListOffsetsResponseTopicPartition()
		if p.Offset = 0; req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp == timeEnd {
			p.Offset = int64(len(l.raw))
		}
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic, t.Partitions = l.topic, append(t.Partitions, p)
		res := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		res.Topics = append(res.Topics, t)
		return res, nil, true
	})
}

// fetch is Partition.readRecords.
func (l *epochLog) fetch(w kmsg.FetchRequestTopicPartition) (p kmsg.FetchResponseTopicPartition, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, wish{offset: w.FetchOffset, epoch: w.LastFetchedEpoch})
	if l.again != nil && w.FetchOffset == 6 {
		l.again()
		l.again = nil
	}
	p = kmsg.NewFetchResponseTopicPartition()
	end := int64(len(l.raw))
	if l.late > 0 {
		l.late--
		end = l.behind
	}
	p.HighWatermark, p.LastStableOffset, p.RecordBatches = end, end, []byte{}
	if w.LastFetchedEpoch >= 0 {
		switch of, offset := l.end(w.LastFetchedEpoch, end); {
		case offset < 0:
			p.ErrorCode = 1 // OFFSET_OUT_OF_RANGE
			return p, 0
		case of < w.LastFetchedEpoch || offset < w.FetchOffset:
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = of, offset
			return p, 0
		}
	}
	if w.FetchOffset > end {
		p.ErrorCode = 1
		return p, 0
	}
	for _, b := range l.raw[w.FetchOffset:end] {
		p.RecordBatches = append(p.RecordBatches, b...)
		n++
	}
	return p, n
}

// says is the epoch that the last fetch at an offset told; -2: there was none.
func (l *epochLog) says(offset int64) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	epoch := int32(-2)
	for _, w := range l.asked {
		if w.offset == offset {
			epoch = w.epoch
		}
	}
	return epoch
}

// TestCutOff: a log is cut off and has grown past our position again before it is looked at. What was written since is handled,
// nothing else comes again, and a Gap says so (f31).
func TestCutOff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		policy string
		meddle func(t *testing.T, ts *testSystem, l *epochLog, r *cutRunner) *cutRunner // cuts the log off at 6
	}{
		{"while it runs", "earliest", func(_ *testing.T, _ *testSystem, l *epochLog, r *cutRunner) *cutRunner {
			r.ack(2)
			l.put(6, 9, 5, "new")
			return r
		}},
		{"by policy latest", "latest", func(_ *testing.T, _ *testSystem, l *epochLog, r *cutRunner) *cutRunner {
			r.ack(2)
			l.put(6, 9, 5, "new")
			return r
		}},
		{"under a handler", "earliest", func(_ *testing.T, _ *testSystem, l *epochLog, r *cutRunner) *cutRunner {
			l.put(6, 9, 5, "new")
			return r
		}},
		{"below what is given back", "earliest", func(t *testing.T, _ *testSystem, l *epochLog, r *cutRunner) *cutRunner {
			_ = r.s.Pause() // or it would be noticed at the position before the rewind
			l.put(6, 9, 5, "new")
			err := r.s.Nack(r.msgs[2].Claim, []broker.Back{{Token: r.msgs[2].Token}})
			if err = errors.Join(err, r.s.Resume()); err != nil {
				t.Error(err)
			}
			return r
		}},
		{"while it is away", "earliest", func(t *testing.T, ts *testSystem, l *epochLog, r *cutRunner) *cutRunner {
			r.ack(2)
			eventually(t, "all is committed", func() bool { return ts.fakeProgress(ts.topics[0])[0].committed == 10 })
			r.close()
			l.put(6, 9, 5, "new")
			return startCut(t, ts, "earliest", -1)
		}},
		{"while it is away, above what is unfinished", "earliest",
			func(t *testing.T, ts *testSystem, l *epochLog, r *cutRunner) *cutRunner {
				r.kill(r.link)
				l.put(6, 9, 5, "new")
				return startCut(t, ts, "earliest", -1)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 1, 1)
			ts.lease = time.Second
			l := &epochLog{}
			l.serve(ts)
			old := l.put(0, 10, 3, "old")
			r := startCut(t, ts, tc.policy, 2)
			eventually(t, "the old messages came", func() bool { return r.has(old) })
			eventually(t, "what is finished is committed", func() bool {
				p := ts.fakeProgress(ts.topics[0])[0]
				is, _ := decodeMetadata(p.committed, p.metadata)
				return slices.Equal(is.done, []span{{3, 10}})
			})
			was := r
			r = tc.meddle(t, ts, l, r)
			var want []string
			for o := 6; o < 15; o++ {
				want = append(want, fmt.Sprint("new", o))
			}
			eventually(t, "what was written since came", func() bool { return r.has(want) })
			var e broker.Event
			eventually(t, "the gap is told", func() (said bool) {
				e, said = r.event(broker.Gap, errCutOff.Error())
				return said
			})
			if e.N != -1 || !strings.Contains(e.Err.Error(), ts.topics[0]+"/0") ||
				!strings.Contains(e.Err.Error(), "at offset 6") || !strings.Contains(e.Err.Error(), "4 handled") {
				t.Errorf("the gap is %+v, want one that says where, and that 4 handled messages are gone", e)
			}
			for v, n := range r.seen() {
				if r != was {
					n += was.seen()[v]
				}
				if n != 1 && v != "old2" {
					t.Errorf("%s came %d times", v, n)
				}
			}
		})
	}
}

// TestCutOffTwice: the log is cut off again, below where it was, before anything was read of what is there since. It is read from
// the second cut.
func TestCutOffTwice(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	l := &epochLog{}
	l.serve(ts)
	old := l.put(0, 10, 3, "old")
	r := startCut(t, ts, "earliest", -1)
	eventually(t, "the old messages came", func() bool { return r.has(old) })
	var newest []string
	l.mu.Lock()
	l.again = func() { newest = l.write(4, 9, 7, "newest") }
	l.write(6, 9, 5, "new")
	l.mu.Unlock()
	eventually(t, "what was written last came", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return newest != nil && r.has(newest)
	})
}

// TestCutOffStops: with the policy stop it ends Receive, and so it does again after a restart.
func TestCutOffStops(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	l := &epochLog{}
	l.serve(ts)
	old := l.put(0, 10, 3, "old")
	r := startCut(t, ts, "stop", -1)
	eventually(t, "the old messages came", func() bool { return r.has(old) })
	eventually(t, "all is committed", func() bool { return ts.fakeProgress(ts.topics[0])[0].committed == 10 })
	l.put(6, 9, 5, "new")
	for range 2 {
		<-r.end
		if !errors.Is(r.err, errCutOff) {
			t.Errorf("Receive returned %v", r.err)
		}
		r.close()
		r = startCut(t, ts, "stop", -1)
	}
	<-r.end
}

// TestNotCutOff: what looks like a log that was cut off, and is not, is read on with nothing twice.
func TestNotCutOff(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(l *epochLog){
		"a follower that is behind": func(l *epochLog) {
			l.mu.Lock()
			l.behind, l.late = 8, 2
			l.mu.Unlock()
			l.put(10, 5, 3, "v")
		},
		"a new leader": func(l *epochLog) { l.put(10, 5, 4, "v") },
		"compaction left nothing of the epoch": func(l *epochLog) {
			l.mu.Lock()
			for i := range l.epochs {
				l.epochs[i] = 2
			}
			l.mu.Unlock()
			l.put(10, 5, 4, "v")
		},
		"a leader that does not know the epoch": func(l *epochLog) {
			l.mu.Lock()
			for i := range l.epochs {
				l.epochs[i] = 2
			}
			l.mu.Unlock()
			l.put(10, 5, 2, "v")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSystem(t, 1, 1)
			l := &epochLog{}
			l.serve(ts)
			want := l.put(0, 10, 3, "v")
			r := startCut(t, ts, "stop", -1)
			eventually(t, "the first messages came", func() bool { return r.has(want) })
			eventually(t, "it is asked for more", func() bool { return l.says(10) != -2 })
			if first, last := l.says(0), l.says(10); first != -1 || last != 3 {
				t.Errorf("at the beginning epoch %d is told, and then %d; want -1 and 3", first, last)
			}
			meddle(l)
			for o := 10; o < 15; o++ {
				want = append(want, fmt.Sprint("v", o))
			}
			eventually(t, "what came later came", func() bool { return r.has(want) })
			for v, n := range r.seen() {
				if n != 1 {
					t.Errorf("%s came %d times", v, n)
				}
			}
			if e, said := r.event(broker.Gap, ""); said {
				t.Errorf("it told a gap: %v", e.Err)
			}
		})
	}
}

// A cutRunner acks all but one message, which it keeps.
type cutRunner struct {
	*runner
	link *link
	msgs map[int64]broker.Message // kept
}

func startCut(t *testing.T, ts *testSystem, policy string, keep int64) *cutRunner {
	t.Helper()
	l := ts.net.link()
	cfg := ts.config(l)
	cfg.OutOfRange = policy
	s, err := NewSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &cutRunner{link: l, msgs: make(map[int64]broker.Message), runner: &runner{t: t, s: s, end: make(chan struct{}),
		times: make(map[string]int), hold: true, out: make(chan broker.Message, 1000)}}
	r.open(t)
	kept := make(chan broker.Message, 1)
	go func() {
		for {
			select {
			case <-r.end:
				return
			case m := <-r.out:
				if m.Offset == keep && len(kept) == 0 && r.seen()["new6"] == 0 {
					kept <- m
				} else {
					_ = s.Ack(m.Claim, []uint64{m.Token})
				}
			}
		}
	}()
	if keep >= 0 {
		m := <-kept
		r.msgs[keep] = m
		kept <- m
	}
	return r
}

func (r *cutRunner) ack(o int64) { _ = r.s.Ack(r.msgs[o].Claim, []uint64{r.msgs[o].Token}) }

// TestEpochOfControlBatches: a batch that has nothing to hand out tells its epoch, too. The epoch before it ends below the
// position behind it, as if the log had been cut off there.
func TestEpochOfControlBatches(t *testing.T) {
	by := func(epoch uint32) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[atEpoch:], epoch) }
	}
	raw := append(testBatch{offsets: offsets(0, 3), attrs: attrTransactional, producer: 9, afterwards: by(3)}.bytes(),
		testBatch{base: 3, offsets: offsets(3, 4), attrs: attrTransactional | attrControl, producer: 9, afterwards: by(4)}.bytes()...)
	d := newDecoder(raw, 0, 100, true, nil, 1<<20)
	if got, err := readAll(d); err != nil || len(got) != 3 || d.at != 4 || d.epoch != 4 {
		t.Errorf("%v, %v: the position is %d, of epoch %d; want 4 of 4", got, err, d.at, d.epoch)
	}
}

// TestCutOffUnderTransaction: the log is cut off while nobody knows what became of a transaction, which was committed. What it
// has the outputs of is not handled again where it is below the cut: its outputs would be there twice.
func TestCutOffUnderTransaction(t *testing.T) {
	t.Parallel()
	ts := fakeSystem(t, ofOne, "transactional")
	ts.lease = lasting
	l := &epochLog{}
	l.serve(ts)
	ts.net.loseEnd(true)
	l.put(0, 10, 3, "old")
	ended := make(chan error, 100)
	_, stop := ts.runConsumer(t, ts.net.link(), consumer.Config{
		Observers: []consumer.Observer{func(e consumer.Event) {
			if s, ok := e.(consumer.SourceEvent); ok && s.Kind == broker.Ended {
				ended <- s.Err
			}
		}},
		Handler: func(ctx context.Context, m *consumer.Message) error {
			return consumer.Emit(ctx, broker.Outgoing{Topic: ts.outputs, Key: m.Key, Value: m.Value})
		},
	})
	eventually(t, "the end of a transaction is lost", ts.net.lostEnd)
	newer := l.put(6, 9, 5, "new")
	if err := <-ended; !errors.Is(err, errCutOff) {
		t.Errorf("the claim ended: %v", err)
	}
	ts.net.foundEnd()
	times := make(map[string]int)
	eventually(t, "all outputs are stored", func() bool {
		clear(times)
		for _, m := range ts.stored(t, ts.outputs) {
			times[string(m.Value)]++
		}
		return !slices.ContainsFunc(newer, func(v string) bool { return times[v] == 0 })
	})
	for o := range 6 {
		if v := fmt.Sprint("old", o); times[v] != 1 {
			t.Errorf("the output of %s is stored %d times", v, times[v])
		}
	}
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestCutOffWith: what is committed joins what was finished, as far as it is of the same log and below the cut.
func TestCutOffWith(t *testing.T) {
	c := &cutOff{at: 20, progress: progress{log: 1, base: 5, done: []span{{8, 10}, {12, 14}}, runs: []failedRuns{{6, 1}, {15, 2}}}}
	for name, tc := range map[string]struct {
		committed progress
		base      int64
		done      []span
		runs      int
	}{
		"nothing more":     {progress{log: 1, base: 3, done: []span{{8, 10}}}, 5, []span{{8, 10}, {12, 14}}, 2},
		"up to a span":     {progress{log: 1, base: 8}, 10, []span{{12, 14}}, 1},
		"between":          {progress{log: 1, base: 5, done: []span{{9, 13}, {16, 18}}}, 5, []span{{8, 14}, {16, 18}}, 2},
		"from the base":    {progress{log: 1, base: 3, done: []span{{4, 7}}}, 7, []span{{8, 10}, {12, 14}}, 1},
		"beyond the cut":   {progress{log: 1, base: 5, done: []span{{18, 25}, {30, 31}}}, 5, []span{{8, 10}, {12, 14}, {18, 20}}, 2},
		"all, and beyond":  {progress{log: 1, base: 30}, 20, nil, 0},
		"of another log":   {progress{log: 2, base: 9}, 5, []span{{8, 10}, {12, 14}}, 2},
		"of nobody's":      {progress{base: 9}, 5, []span{{8, 10}, {12, 14}}, 2},
		"there is no more": {progress{log: 1, base: -1}, 5, []span{{8, 10}, {12, 14}}, 2},
	} {
		p := c.with(tc.committed)
		if p.base != tc.base || !slices.Equal(p.done, tc.done) || len(p.runs) != tc.runs || p.log != 1 {
			t.Errorf("%s: %+v, want base %d, done %v, %d runs", name, p, tc.base, tc.done, tc.runs)
		}
	}
	if len(c.runs) != 2 || c.base != 5 {
		t.Errorf("it is changed: %+v", c.progress)
	}
}
