package kafkabroker

import (
	"bytes"
	"runtime"
	"testing"
	"time"
	"weak"
)

// Partitions come together in one answer. One that is held for long keeps what is its own of it, which the budget counts, and not
// the rest as well: each of a hundred that are held, one after the other, would keep another answer. It is the same where its
// window is full.
func TestHeldPartitionKeepsNoAnswer(t *testing.T) {
	x := newHolder(t, 0)
	for id := range x.logs {
		x.tell(0, id)
	}
	x.follow()
	for len(x.lookUps) > 0 {
		x.lookUp()
	}
	x.follow()
	p := x.h.roster.turns[0]
	hold := func() {
		x.h.hold(p, x.now.Add(time.Hour))
		x.now = x.h.next(x.now) // when it has been held for long
		x.h.next(x.now)
	}
	stall := func() {
		p.heldUntil = time.Time{}
		p.tr.offer(p.scan, 1)
		p.scan, p.tr.most = p.tr.passed, 1
		if x.h.ready(p, x.now) {
			t.Error("its window is not full")
		}
	}
	for name, c := range map[string]struct {
		decoded int64
		wait    func()
	}{
		"between batches": {0, hold}, "within a batch": {2, hold}, "at its end": {4, hold},
		"stalled": {2, stall},
	} {
		t.Run(name, func(t *testing.T) {
			const each = 4
			records := join(testBatch{offsets: offsets(0, each)}, testBatch{base: each, offsets: offsets(each, 2*each)})
			answer := make([]byte, 1<<20)
			copy(answer[100:], records)
			kept := weak.Make(&answer[0])
			d := newDecoder(answer[100:100+len(records)], 0, 100, true, nil, 1<<20)
			answer = nil
			next := func(o int64) {
				t.Helper()
				var r record
				if more, err := d.next(&r); !more || err != nil || r.offset != o || !bytes.HasPrefix(r.value, []byte("v")) {
					t.Fatalf("%v, %v, offset %d with %q, want %d", more, err, r.offset, r.value, o)
				}
			}
			for o := range c.decoded {
				next(o)
			}
			p.put(d, int64(len(records)))
			c.wait()
			if p.cur != d {
				t.Fatal("what was prefetched is let go")
			}
			runtime.GC()
			if kept.Value() != nil {
				t.Error("the whole answer is in memory")
			}
			for o := c.decoded; o < 2*each; o++ {
				next(o)
			}
			if more, err := d.next(new(record)); more || err != nil || d.at != 2*each {
				t.Errorf("%v, %v at the end, at %d", more, err, d.at)
			}
			p.drop()
		})
	}
}
