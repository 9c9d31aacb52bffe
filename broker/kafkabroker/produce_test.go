package kafkabroker

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// What is encoded is read again by our own decoder, which checks lengths, counts and checksum.
func TestBatchOfOutputs(t *testing.T) {
	outs := []broker.Outgoing{
		{Topic: "out", Key: []byte("k"), Value: []byte("v"), Headers: []broker.Header{{Key: "h", Value: []byte("x")}, {Key: "n"}},
			ID: "id-1"},
		{Topic: "out"},
		{Topic: "out", Key: []byte{}, Value: bytes.Repeat([]byte("y"), 100_000)},
	}
	b := newOutBatch(partitionID{"out", 0}, 1, 0)
	for i := range outs {
		b.add(appendTail(nil, &outs[i]))
	}
	d := newDecoder(b.encode(producer{7, 3}, 5, time.UnixMilli(1_700_000_000_000)), 0, 10, false, nil, 1<<20)
	for i := range outs {
		var r record
		var m broker.Message
		if ok, err := d.next(&r); !ok || err != nil {
			t.Fatalf("record %d: %v, %v", i, ok, err)
		}
		r.fill(&m, "out", 0)
		if !bytes.Equal(m.Key, outs[i].Key) || (m.Key == nil) != (outs[i].Key == nil) || !bytes.Equal(m.Value, outs[i].Value) ||
			m.Offset != int64(i) {
			t.Errorf("record %d: %d bytes of key, %d of value, offset %d", i, len(m.Key), len(m.Value), m.Offset)
		}
		if id, _ := m.Headers.Get(broker.HeaderID); string(id) != outs[i].ID {
			t.Errorf("record %d: ID %q", i, id)
		}
	}
}

// A batch is compressed where that makes it shorter, and is read again as what it was, whatever the memory had before.
func TestSqueezedBatch(t *testing.T) {
	noise := make([]byte, 800)
	for _, of := range []struct {
		name  string
		n     int
		value func(i int) []byte
		want  bool
	}{
		{"text", 2000, func(i int) []byte { return fmt.Appendf(nil, "%d: %s", i, strings.Repeat("all work and no play ", 20)) }, true},
		{"one block", 40, func(i int) []byte { return fmt.Appendf(nil, "%d: %s", i, strings.Repeat("all work and no play", 3)) }, true},
		{"little", 2, func(int) []byte { return []byte("aaaaaaaaaaaaaaaa") }, false},
		{"noise", 1000, func(int) []byte {
			for i := range noise {
				noise[i] = byte(rand.Uint32())
			}
			return noise
		}, false},
	} {
		t.Run(of.name, func(t *testing.T) {
			var values [][]byte
			b := newOutBatch(partitionID{"out", 0}, 1, 0)
			for i := range of.n {
				values = append(values, slices.Clone(of.value(i)))
				b.add(appendTail(nil, &broker.Outgoing{Value: values[i]}))
			}
			long := len(b.buf)
			b.squeeze()
			buf := b.encode(producer{7, 3}, 5, time.UnixMilli(1_700_000_000_000))
			if is := buf[atAttrs+1]&attrCodec == codecSnappy; is != of.want || is != (len(buf) < long) {
				t.Errorf("compressed: %v, to %d of %d bytes", is, len(buf), long)
			}
			if buf[atAttrs+1]&attrTransactional == 0 {
				t.Error("it is in no transaction")
			}
			d := newDecoder(buf, 0, int64(of.n), false, nil, 2<<20)
			for i := range of.n {
				var r record
				if ok, err := d.next(&r); !ok || err != nil || !bytes.Equal(r.value, values[i]) {
					t.Fatalf("record %d of %d: %v, %v, %q", i, of.n, ok, err, r.value)
				}
			}
		})
	}
}

// A batch in memory that another was written from has nothing of that, and is as long as it is.
func TestBatchInSpareMemory(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	fill := func(b *outBatch, what string, n int) {
		for range n {
			b.add(appendTail(nil, &broker.Outgoing{Value: []byte(strings.Repeat(what, 1000))}))
		}
	}
	fresh := &outBatch{partitionID: partitionID{"out", 0}, buf: make([]byte, headerSize)}
	fill(fresh, "b", 300)
	want := fresh.encode(producer{7, 3}, 5, now)
	for range 20 { // a pool may forget
		first := newOutBatch(partitionID{"out", 1}, 1, batchLimit)
		fill(first, "a", 800)
		first.encode(producer{9, 9}, 1<<30, now.Add(time.Hour))
		first.spare()
		second := newOutBatch(partitionID{"out", 0}, 1, spareLeast)
		fill(second, "b", 300)
		if got := second.encode(producer{7, 3}, 5, now); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want the same %d as in fresh memory", len(got), len(want))
		}
		second.spare()
	}
}

// What goes to a partition keeps its order over batches, none of which is larger than a broker takes.
func TestBatchesOfOutputs(t *testing.T) {
	var outs []broker.Outgoing
	for i := range 3000 {
		outs = append(outs, broker.Outgoing{Topic: "out", Key: fmt.Appendf(nil, "%d", i%50),
			Value: append(fmt.Appendf(nil, "%d.", i), make([]byte, 1000)...)})
	}
	of := make([]*broker.Outgoing, len(outs))
	for i := range outs {
		of[i] = &outs[i]
	}
	rounds := batchesOf(of, map[string]topic{"out": {leaders: []int32{1, 2, 1}}}, func(string) int { return batchLimit }, "")
	if len(rounds) < 2 {
		t.Fatalf("%d rounds: nothing was cut", len(rounds))
	}
	last, n := make(map[string]int), 0
	for _, round := range rounds {
		seen := make(map[partitionID]bool)
		for _, b := range round {
			if seen[b.partitionID] {
				t.Errorf("two batches of %v in a round", b.partitionID)
			}
			seen[b.partitionID] = true
			buf := b.encode(producer{1, 0}, 0, time.Now())
			if len(buf) > batchLimit {
				t.Errorf("a batch of %d bytes", len(buf))
			}
			d := newDecoder(buf, 0, 10_000, false, nil, 2<<20)
			var r record
			for more, err := d.next(&r); more || err != nil; more, err = d.next(&r) {
				if err != nil {
					t.Fatal(err)
				}
				var i int
				fmt.Sscan(string(bytes.SplitN(r.value, []byte("."), 2)[0]), &i)
				if was, ok := last[string(r.key)]; ok && i < was {
					t.Errorf("%d of key %s comes after %d", i, r.key, was)
				}
				last[string(r.key)] = i
				n++
			}
		}
	}
	if n != len(outs) {
		t.Errorf("%d of %d messages are in batches", n, len(outs))
	}
}

// What goes to a blocked topic stays, with all that stands behind it and goes to one of its topics; the rest goes on.
func TestOutputsBehindBlocked(t *testing.T) {
	to := func(topics ...string) (outs []broker.Outgoing) {
		for _, topic := range topics {
			outs = append(outs, broker.Outgoing{Topic: topic})
		}
		return outs
	}
	var x outputs
	var made room
	for i, outs := range [][]broker.Outgoing{to("a"), to("down", "b"), to("b"), to("a"), to("down"), to("c")} {
		x.waiting = append(x.waiting, made.add(uint64(i), []int64{int64(i)}, outs))
	}
	numbers := func(es []*emission) (ns []uint64) {
		for _, e := range es {
			ns = append(ns, e.number)
		}
		return ns
	}
	isDown := func(topic string) bool { return topic == "down" }
	if !x.ready(sieve{blocked: isDown}) {
		t.Error("nothing is ready")
	}
	es := x.take(sieve{blocked: isDown})
	if got := numbers(es); !slices.Equal(got, []uint64{0, 3, 5}) {
		t.Errorf("took %v", got)
	}
	if x.ready(sieve{blocked: isDown}) {
		t.Error("what is blocked is ready")
	}
	x.putBack(es)
	if got := numbers(x.take(sieve{blocked: func(string) bool { return false }})); !slices.Equal(got, []uint64{0, 1, 2, 3, 4, 5}) {
		t.Errorf("put back and taken: %v", got)
	}
}

// A transaction has a portion of what waits, in the order of the acks of all partitions, and one emission at least.
func TestPortion(t *testing.T) {
	waiting := func() (es []*emission) {
		for _, number := range []uint64{4, 1, 3, 2} {
			es = append(es, &emission{number: number, bytes: 10})
		}
		return es
	}
	for n, want := range map[int64]uint64{1: 1, 10: 1, 19: 1, 20: 2, 39: 3, 40: 0} {
		if got := upTo(n, waiting()); got != want {
			t.Errorf("%d bytes: up to %d, want %d", n, got, want)
		}
	}
	var x outputs
	x.waiting = waiting()
	if got := len(x.take(sieve{upTo: 3})); got != 3 || x.ready(sieve{upTo: 3}) || !x.ready(sieve{upTo: 4}) {
		t.Errorf("took %d, want 3 and then only the last one", got)
	}
}

// A message with outputs is finished for a snapshot that has them, and for none before; an abort takes that back.
func TestKeptUntilStored(t *testing.T) {
	tr := newTracker(progress{}, nil, 100)
	var tokens []uint64
	for o := range int64(4) {
		tok, ok := tr.offer(o, 1)
		if !ok {
			t.Fatal("not offered")
		}
		tokens = append(tokens, tok)
	}
	if tr.awaitsOutputs() {
		t.Error("the first one is not handled, and waits for no transaction")
	}
	for _, i := range []int{0, 2} {
		if how, _ := tr.ackKept(tokens[i]); how != settledNow {
			t.Fatal(how)
		}
	}
	tr.ack(tokens[1])
	want := func(what string, base, acked int64, done ...span) {
		t.Helper()
		if s := tr.snapshot(false); s.base != base || s.acked != acked || !slices.Equal(s.done, done) {
			t.Errorf("%s: base %d, acked %d, done %v; want %d, %d, %v", what, s.base, s.acked, s.done, base, acked, done)
		}
	}
	want("kept", 0, 1, span{1, 2})
	if !tr.awaitsOutputs() {
		t.Error("the first one waits for a transaction")
	}
	tr.send([]int64{0, 2})
	want("sending", 3, 3)
	if !tr.awaitsOutputs() {
		t.Error("the first one waits for the end of a transaction")
	}
	tr.keep([]int64{0, 2})
	want("aborted", 0, 1, span{1, 2})
	tr.send([]int64{0})
	tr.stored([]int64{0})
	want("the first is stored", 2, 2)
	tr.ack(tokens[3])
	want("the last is acked", 2, 3, span{3, 4})
	tr.send([]int64{2})
	tr.stored([]int64{2})
	want("all are stored", 4, 4)
}

// FuzzTransactionAnswers: no answer of a coordinator or leader makes a reader panic, or allocate by what it claims.
func FuzzTransactionAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0})
	f.Add([]byte{0, 0, 0, 0, 2, 4, 'o', 'u', 't', 2, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		flexible := func() *reader { return &reader{b: b, flexible: true} }
		_, _, _ = readProducer(flexible())
		codes, _ := readCodes(flexible())
		at, _, _ := readPositions(flexible())
		made, _ := readProduced(&reader{b: b})
		if n := len(codes) + len(at) + len(made); n > 3*len(b) {
			t.Errorf("%d partitions in %d bytes", n, len(b))
		}
	})
}

// What was acked in several partitions goes out in the order of the acks.
func TestMergeOfEmissions(t *testing.T) {
	for range 100 {
		var ds []due
		for range rand.IntN(6) {
			ds = append(ds, due{})
		}
		var want []string
		for n := range rand.IntN(60) {
			if len(ds) > 0 {
				d, name := &ds[rand.IntN(len(ds))], fmt.Sprint(n)
				d.es = append(d.es, &emission{number: uint64(n), outs: []broker.Outgoing{{Topic: name}, {Topic: name + "b"}}})
				want = append(want, name, name+"b")
			}
		}
		var got []string
		for _, o := range outputsOf(ds) {
			got = append(got, o.Topic)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("they go out as %v, want %v", got, want)
		}
	}
}

// What is emitted in one call shares its memory, and nothing else: an emission has its own offsets, whatever another one does
// with its. The outputs are the caller's, who does nothing with them any more.
func TestRoom(t *testing.T) {
	es := []broker.Emission{
		{Tokens: []uint64{1}, Outs: []broker.Outgoing{{Topic: "a", Value: []byte("12345")}}},
		{Tokens: []uint64{2}},
		{Tokens: []uint64{3, 4}, Outs: []broker.Outgoing{{Topic: "b"}, {Topic: "c"}}},
	}
	made := roomFor(es)
	one := made.add(1, []int64{1}, es[0].Outs)
	two := made.add(2, []int64{3, 4}, es[2].Outs)
	_ = append(one.offsets, 99)
	if one.number != 1 || one.bytes != 5 || one.outs[0].Topic != "a" || !slices.Equal(one.offsets, []int64{1}) {
		t.Errorf("the first one is %+v", one)
	}
	if two.number != 2 || two.outs[0].Topic != "b" || two.outs[1].Topic != "c" || !slices.Equal(two.offsets, []int64{3, 4}) {
		t.Errorf("the second one is %+v", two)
	}
	if &made.es[0] != one || cap(made.offsets) != 2 { // one offset has its room in the emission
		t.Errorf("there was no room for them: %d offsets", cap(made.offsets))
	}
}

// TestValidTopic has the borders of what Kafka takes for a topic.
func TestValidTopic(t *testing.T) {
	for name, want := range map[string]bool{
		"orders": true, "a.b_c-D9": true, "...": true, "": false, ".": false, "..": false, "a b": false, "a/b": false, "\u00e4": false,
		"a\n": false, strings.Repeat("a", 249): true, strings.Repeat("a", 250): false,
	} {
		if ValidTopic(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}

// TestSequenceTurns: a producer that has written two thousand million messages to a partition begins again at 0.
func TestSequenceTurns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sequence int32
		n        int
		want     int32
	}{
		{0, 0, 0},
		{0, 7, 7},
		{math.MaxInt32 - 1, 1, math.MaxInt32},
		{math.MaxInt32, 1, 0},
		{math.MaxInt32 - 2, 10, 7},
	} {
		if got := nextSequence(c.sequence, c.n); got != c.want {
			t.Errorf("behind %d records from %d on: %d, want %d", c.n, c.sequence, got, c.want)
		}
	}
}
