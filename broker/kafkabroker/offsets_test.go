package kafkabroker

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/longshoremq/longshore/broker/kit"
)

// logModel is what is true: a log with holes, what became of each message over processes that come and go, and what is committed.
type logModel struct {
	t    *rapid.T
	log  []int64 // offsets that have a message
	end  int64
	from int64          // retention has taken what is below
	bad  span           // cannot be decoded, and is skipped
	done map[int64]bool // acked with nil, ever; or gone without anybody having it out
	base int64
	meta string

	tr      *tracker
	stale   kit.StaleOffsets
	pos     int64
	tokens  map[uint64]int64 // out under the tracker
	orphans map[*tracker]map[uint64]int64
	snap    *snapshot
	acks    map[int64]bool // acked by this tracker
}

func (m *logModel) begin() {
	p, err := decodeMetadata(m.base, m.meta)
	if err != nil {
		m.t.Fatalf("own metadata: %v", err)
	}
	for _, s := range p.done {
		for o := s.from; o < s.to; o++ {
			if slices.Contains(m.log, o) && !m.done[o] {
				m.t.Fatalf("the commit says that %d is finished, which it is not", o)
			}
		}
	}
	m.tr = newTracker(p, m.stale, 1000)
	m.pos, m.tokens, m.snap, m.acks = p.base, make(map[uint64]int64), nil, make(map[int64]bool)
	m.committed()
}

// committed checks the one thing that must never be broken: all below the committed offset is finished, and below the next one.
func (m *logModel) committed() {
	for _, o := range m.log {
		if !m.done[o] && (o < m.base || o < m.tr.floor()) {
			m.t.Fatalf("committed %d, to be committed %d, and %d is not finished", m.base, m.tr.floor(), o)
		}
	}
}

// jump is what a fetch below the log's first offset leads to.
func (m *logModel) jump() {
	if m.pos < m.from {
		m.gone(0, m.from)
	}
}

// skip is what comes of a batch that cannot be decoded.
func (m *logModel) skip() {
	if m.pos >= m.bad.from && m.pos < m.bad.to {
		m.gone(m.pos, m.bad.to)
	}
}

// gone goes on at to, for nothing can be read from an offset up to there.
func (m *logModel) gone(from, to int64) {
	var out []int64
	for _, o := range m.tokens {
		out = append(out, o)
	}
	for _, o := range m.log {
		if o >= from && o < to && !slices.Contains(out, o) {
			m.done[o] = true
		}
	}
	if gone := m.tr.jump(from, to); gone < 0 || gone > to-from {
		m.t.Fatalf("%d are gone of those from %d to %d", gone, from, to)
	}
	m.pos = to
}

func (m *logModel) scan(n int) {
	m.jump()
	m.skip()
	from, end, i := m.pos, m.end, 0
	if m.pos < m.bad.from {
		end = min(end, m.bad.from)
	}
	for _, o := range m.log {
		if o < from {
			continue
		}
		if i == n || o >= end {
			break
		}
		i++
		if tok, ok := m.tr.offer(o, 1); ok {
			for _, at := range m.tokens {
				if at == o {
					m.t.Fatalf("%d is handed out twice", o)
				}
			}
			if m.stale[o] > 0 {
				m.t.Fatalf("%d is handed out, and out under an ended claim", o)
			}
			if m.acks[o] {
				m.t.Fatalf("%d is handed out after it was acked here", o)
			}
			m.tokens[tok] = o
		}
		m.pos = o + 1
	}
	if i < n {
		m.pos = max(m.pos, end)
	}
	if gone := m.tr.pass(from, m.pos); gone != 0 {
		m.t.Fatalf("%d are gone from a log that loses nothing", gone)
	}
}

func (m *logModel) pick() (uint64, bool) {
	if len(m.tokens) == 0 {
		return 0, false
	}
	toks := slices.Sorted(maps.Keys(m.tokens))
	return rapid.SampledFrom(toks).Draw(m.t, "token"), true
}

func (m *logModel) end1(clean bool) {
	if clean && rapid.Bool().Draw(m.t, "last commit") {
		outs := m.tr.fence()
		orphans := make(map[uint64]int64)
		for tok, o := range m.tokens {
			if !slices.Contains(outs, o) {
				m.t.Fatalf("%d is out and fence does not say so", o)
			}
			m.stale[o]++
			orphans[tok] = o
		}
		m.orphans[m.tr] = orphans
		m.take(true)
		m.land()
	} else {
		clear(m.stale) // the process died
		clear(m.orphans)
	}
	m.begin()
}

func (m *logModel) take(clean bool) {
	s := m.tr.snapshot(clean)
	m.snap = &s
}

func (m *logModel) land() {
	if m.snap == nil {
		return
	}
	if m.snap.base < m.base {
		m.t.Fatalf("the commit goes back from %d to %d", m.base, m.snap.base)
	}
	m.base, m.meta = m.snap.base, m.snap.encode(metadataLimit)
	m.tr.commit(*m.snap)
	m.committed()
}

func (m *logModel) settleStale() {
	for tr, os := range m.orphans {
		for tok, o := range os {
			delete(os, tok)
			if how, size := tr.ack(tok); how != settledLate || size != 1 {
				m.t.Fatalf("a late settle says %v and frees %d", how, size)
			}
			if m.stale[o]--; m.stale[o] == 0 {
				delete(m.stale, o)
				if m.tr.settleStale(o) {
					m.pos = min(m.pos, o)
				}
			}
			return
		}
	}
}

// actions are what may happen at any time.
func (m *logModel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"scan": func(t *rapid.T) { m.t = t; m.scan(rapid.IntRange(1, 20).Draw(t, "n")) },
		"ack": func(t *rapid.T) {
			m.t = t
			if tok, ok := m.pick(); ok {
				if how, _ := m.tr.ack(tok); how != settledNow {
					t.Fatalf("ack says %v", how)
				}
				m.done[m.tokens[tok]], m.acks[m.tokens[tok]] = true, true
				delete(m.tokens, tok)
				if how, _ := m.tr.ack(tok); how != settledBefore {
					t.Fatalf("a second ack says %v", how)
				}
			}
		},
		"give back": func(t *rapid.T) {
			m.t = t
			if tok, ok := m.pick(); ok {
				runs := int32(rapid.IntRange(0, 3).Draw(t, "runs"))
				if how, _ := m.tr.giveBack(tok, runs); how != settledNow {
					t.Fatalf("give back says %v", how)
				}
				m.pos = min(m.pos, m.tokens[tok])
				delete(m.tokens, tok)
			}
		},
		"retention": func(t *rapid.T) { m.t = t; m.from = rapid.Int64Range(m.from, min(m.end, m.from+9)).Draw(t, "first") },
		"spoil": func(t *rapid.T) {
			m.t = t
			m.bad.from = rapid.Int64Range(max(0, m.pos-2), m.pos+5).Draw(t, "from")
			m.bad.to = min(m.end, rapid.Int64Range(m.bad.from, m.bad.from+5).Draw(t, "to"))
		},
		"snapshot": func(t *rapid.T) { m.t = t; m.take(false) },
		"commit":   func(t *rapid.T) { m.t = t; m.land() },
		"die":      func(t *rapid.T) { m.t = t; m.end1(false) },
		"leave":    func(t *rapid.T) { m.t = t; m.end1(true) },
		"late":     func(t *rapid.T) { m.t = t; m.settleStale() },
		"":         func(t *rapid.T) { m.t = t; m.committed() },
	}
}

// TestTrackerModel proves on random histories of processes: nothing unfinished is ever below a commit or called finished in its
// metadata, commits never go back, nothing is handed out twice, and in the end everything is finished and committed. Messages are
// given back in any order, retention takes some at any time, and some cannot be decoded any more.
func TestTrackerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &logModel{t: t, done: make(map[int64]bool), stale: make(kit.StaleOffsets), orphans: make(map[*tracker]map[uint64]int64)}
		m.end = rapid.Int64Range(1, 120).Draw(t, "length")
		for o := range m.end {
			if rapid.IntRange(0, 3).Draw(t, "hole") > 0 {
				m.log = append(m.log, o)
			}
		}
		m.begin()
		t.Repeat(m.actions())
		m.t = t
		for len(m.orphans) > 0 {
			n := 0
			for _, os := range m.orphans {
				n += len(os)
			}
			if n == 0 {
				break
			}
			m.settleStale()
		}
		for m.scan(math.MaxInt); len(m.tokens) > 0 || m.pos < m.end; m.scan(math.MaxInt) {
			for tok, o := range m.tokens {
				m.tr.ack(tok)
				m.done[o] = true
			}
			clear(m.tokens)
		}
		m.take(true)
		m.land()
		if m.base != m.end {
			t.Fatalf("at the end %d is committed, want %d", m.base, m.end)
		}
		if len(m.snap.done) > 0 || m.snap.starts != 0 && m.base != m.tr.begun {
			t.Fatalf("at the end the metadata has %v, starts %d", m.snap.done, m.snap.starts)
		}
	})
}

func TestTrackerGone(t *testing.T) {
	tr := newTracker(progress{base: 10, done: []span{{15, 18}}}, nil, 100)
	var toks []uint64
	for o := int64(10); o < 13; o++ {
		tok, _ := tr.offer(o, 1)
		toks = append(toks, tok)
	}
	tr.pass(10, 13)
	tr.giveBack(toks[1], 0)
	// Retention takes 11 (given back), 13, 14, 18 and 19; 10 and 12 are out and will be settled; 15 to 17 are finished.
	if gone := tr.jump(11, 20); gone != 5 {
		t.Errorf("jump says that %d are gone, want 5", gone)
	}
	tr.ack(toks[0])
	if tr.floor() != 12 {
		t.Errorf("floor is %d, want 12", tr.floor())
	}
	tr.ack(toks[2])
	if tr.floor() != 20 {
		t.Errorf("floor is %d, want 20", tr.floor())
	}
}

// TestTrackerSkip: what cannot be decoded is skipped behind a message that is out under an ended claim. That one is in the log
// still, and comes again when it is settled.
func TestTrackerSkip(t *testing.T) {
	tr := newTracker(progress{base: 10}, kit.StaleOffsets{10: 1, 21: 1}, 100)
	if _, ok := tr.offer(10, 1); ok {
		t.Fatal("10 is handed out, and out under an ended claim")
	}
	tok, _ := tr.offer(11, 1)
	tr.ack(tok)
	tr.pass(10, 20)
	if gone := tr.jump(20, 23); gone != 3 {
		t.Errorf("jump says that %d are gone, want 3", gone)
	}
	if tr.floor() != 10 {
		t.Errorf("floor is %d, want 10", tr.floor())
	}
	if !tr.settleStale(10) {
		t.Error("10 does not come again")
	}
	if tr.settleStale(21) {
		t.Error("21 is to come again, which cannot be decoded")
	}
}

func TestTrackerStarts(t *testing.T) {
	p := progress{base: 5}
	for i := 1; i <= 3; i++ {
		tr := newTracker(p, nil, 100)
		tok, _ := tr.offer(5, 1)
		if s := tr.snapshot(false); s.starts != i {
			t.Fatalf("process %d commits %d starts", i, s.starts)
		}
		p, _ = decodeMetadata(5, tr.snapshot(false).encode(metadataLimit)) // and dies
		if i < 3 {
			continue
		}
		if s := tr.snapshot(true); s.starts != 2 {
			t.Errorf("a clean end leaves %d starts, want 2", s.starts)
		}
		tr.ack(tok)
		if s := tr.snapshot(false); s.base != 6 || s.starts != 1 {
			t.Errorf("after progress: %d starts at %d, want 1 at 6", s.starts, s.base)
		}
	}
}

func TestTrackerWindow(t *testing.T) {
	tr := newTracker(progress{}, nil, 1<<20)
	n := int64(0)
	for ; tr.window() < 1 && n < 1<<17; n++ {
		tok, _ := tr.offer(n, 1)
		if n%3 > 0 && n%7 > 0 { // a pattern that no run-length helps
			tr.ack(tok)
		}
	}
	if n < 10_000 || n > 30_000 {
		t.Errorf("intake stops after %d messages with a bad pattern, want about 8 × 2300", n)
	}
	if s := tr.snapshot(false).encode(metadataLimit); len(s) > metadataLimit {
		t.Errorf("metadata has %d bytes", len(s))
	}
	few := newTracker(progress{}, nil, 100)
	for o := range int64(100) {
		few.offer(o, 1)
	}
	if few.window() < 1 {
		t.Errorf("window is %v with as many entries as it may have", few.window())
	}
}

func BenchmarkTracker(b *testing.B) {
	tr := newTracker(progress{}, nil, 1<<16)
	toks := make([]uint64, 64)
	for o := int64(0); b.Loop(); {
		for i := range toks {
			toks[i], _ = tr.offer(o, 100)
			o++
		}
		for _, tok := range toks {
			tr.ack(tok)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/msg")
}

// TestWindowOpensAgain: messages far apart are finished above unfinished ones, until the metadata has no room for more. When the
// others are finished, too, the window is open again, however few these are: nothing else would come that opens it.
func TestWindowOpensAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		apart int64
		runs  int32
		exact bool
	}{
		"dense":                     {apart: 1},
		"sparse":                    {apart: 1 << 14},
		"sparser, and failed":       {apart: 1 << 21, runs: 3},
		"sparser, in a transaction": {apart: 1 << 28, exact: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTracker(progress{log: 1}, nil, 1<<16)
			x.exact = tc.exact
			var left []uint64
			for o := int64(0); x.window() < 1; o += tc.apart {
				tok, ok := x.offer(o, 1)
				if !ok {
					t.Fatalf("offset %d is not handed out", o)
				}
				if o/tc.apart%2 == 1 {
					x.ack(tok)
					continue
				}
				if tc.runs > 0 {
					x.giveBack(tok, tc.runs)
					tok, _ = x.offer(o, 1)
				}
				left = append(left, tok)
			}
			if x.finish(left, tc.exact); x.window() >= thawPart {
				t.Errorf("the window is %v full when all of %d messages are finished", x.window(), len(left))
			}
		})
	}
}

// finish acks messages, with what was made of them or without, and looks at the window after each.
func (t *tracker) finish(toks []uint64, kept bool) {
	var offsets []int64
	for _, tok := range toks {
		ack := t.ack
		if kept {
			ack = t.ackKept
		}
		ack(tok)
		t.window()
		o, _ := splitToken(tok)
		offsets = append(offsets, o)
	}
	if kept {
		t.send(offsets)
		t.window()
		t.stored(offsets)
	}
}

// TestWindowOfSuccessor: a process ends with its window full, and the next one takes over what is finished there. It has nothing
// out, so nothing but what it takes in brings the floor on: the window lets that in, up to where its predecessor was.
func TestWindowOfSuccessor(t *testing.T) {
	for _, exact := range []bool{false, true} {
		t.Run(fmt.Sprintf("exact %v", exact), func(t *testing.T) {
			first := newTracker(progress{log: 1}, nil, 1<<16)
			first.exact = exact
			n := int64(0)
			for ; first.window() < 1; n++ {
				if tok, _ := first.offer(n, 1); n%2 == 1 {
					first.ack(tok)
				}
			}
			at, err := decodeMetadata(0, first.snapshot(false).encode(metadataLimit))
			if err != nil || len(at.done) < 100 {
				t.Fatalf("%d spans, %v", len(at.done), err)
			}
			next := newTracker(at, nil, 1<<16)
			next.exact = exact
			for o := range n {
				if w := next.window(); w >= 1 {
					t.Fatalf("the window is %v full at offset %d of %d, and nothing is out", w, o, n)
				}
				tok, ok := next.offer(o, 1)
				if next.pass(o, o+1); ok {
					next.ack(tok)
				}
			}
		})
	}
}

// TestWindowOfSuccessorWithRuns: the same where the predecessor gave back so many messages that had failed that their runs took
// all the room in the metadata.
func TestWindowOfSuccessorWithRuns(t *testing.T) {
	at, messages := fullOfRuns(t)
	next := newTracker(at, nil, 1<<16)
	for o := range messages {
		if w := next.window(); w >= 1 {
			t.Fatalf("the window is %v full at offset %d of %d, and nothing is out", w, o, messages)
		}
		tok, ok := next.offer(o, 1)
		if !ok {
			t.Fatalf("offset %d is not handed out", o)
		}
		next.ack(tok)
	}
}

// fullOfRuns is what a process committed that gave back so many failed messages that not all had room.
func fullOfRuns(t *testing.T) (at progress, messages int64) {
	messages = 1 << 12
	first := newTracker(progress{log: 1}, nil, 1<<16)
	for o := range messages {
		first.offer(o, 1)
	}
	for o := range messages {
		first.giveBack(token(o, 0), 1+int32(o%3))
	}
	at, err := decodeMetadata(0, first.snapshot(false).encode(metadataLimit))
	if err != nil || len(at.done) > 0 || len(at.runs) < 500 {
		t.Fatalf("%d spans, %d runs, %v", len(at.done), len(at.runs), err)
	}
	return at, messages
}
