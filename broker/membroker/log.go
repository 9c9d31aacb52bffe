package membroker

import (
	"sort"

	"github.com/longshoremq/longshore/broker"
)

// segmentSize is how many messages a segment takes before the next one begins, unless one call produces more.
const segmentSize = 256

// A segment is a piece of a log: n messages of one topic from offset base on. What was written to ms is never written again; it may be
// appended to, so readers take a span, which has its own slice header. A segment longer than ms repeats it (Fill).
type segment struct {
	base, n int64
	topic   string
	ms      []broker.Message
}

// A commitLog is a partition's messages, or a stream's. Guarded by Broker.mu.
type commitLog struct {
	topic     string // empty for a stream of several topics
	partition int32
	// epoch counts its recreations.
	epoch      int
	first, end int64
	segs       []*segment
	// ids were published before.
	ids map[string]struct{}
}

// A span is a run of messages on its way to Receive. attempt and runs hold for each of them.
type span struct {
	ms            []broker.Message // ms[0] is at base
	base          int64
	from, n       int64
	bytes         int64
	attempt, runs int32
}

func (sp *span) at(o int64) *broker.Message { return &sp.ms[o-sp.base] }

func sizeOf(m *broker.Message) int64 {
	return int64(len(m.Key) + len(m.Value) + len(m.Headers.Raw))
}

// append adds messages of one topic, n in all, which repeat ms.
func (l *commitLog) append(topic string, ms []broker.Message, n int64) {
	repeats := n != int64(len(ms))
	if k := len(l.segs); !repeats && k > 0 {
		last := l.segs[k-1]
		if last.topic == topic && last.n == int64(len(last.ms)) && len(last.ms)+len(ms) <= segmentSize {
			last.ms = append(last.ms, ms...)
			last.n += n
			l.end += n
			return
		}
	}
	l.segs = append(l.segs, &segment{base: l.end, n: n, topic: topic, ms: ms})
	l.end += n
}

// find returns the index of the segment that holds the offset, or of the first one behind it.
func (l *commitLog) find(o int64) int {
	return sort.Search(len(l.segs), func(i int) bool { return l.segs[i].base+l.segs[i].n > o })
}

// read returns up to limit messages from the offset on, of one segment, and at most maxBytes of them (but at least one).
func (l *commitLog) read(from int64, limit int, maxBytes int64) (sp span, topic string) {
	from = max(from, l.first)
	i := l.find(from)
	if i == len(l.segs) {
		return span{}, ""
	}
	sg := l.segs[i]
	at := (from - sg.base) % int64(len(sg.ms))
	sp = span{ms: sg.ms[at:], base: from, from: from, attempt: 1}
	n := min(int64(limit), int64(len(sp.ms)), sg.base+sg.n-from)
	for sp.n < n {
		size := sizeOf(&sp.ms[sp.n])
		if sp.n > 0 && sp.bytes+size > maxBytes {
			break
		}
		sp.bytes += size
		sp.n++
	}
	return sp, sg.topic
}

// trim drops what is below the offset.
func (l *commitLog) trim(first int64) {
	l.first = min(max(l.first, first), l.end)
	i := l.find(l.first)
	l.segs = append([]*segment(nil), l.segs[i:]...)
}

// matching counts the messages in [from, end) of the topics; nil means all.
func (l *commitLog) matching(from int64, topics map[string]bool) int64 {
	from = max(from, l.first)
	if topics == nil {
		return max(0, l.end-from)
	}
	n := int64(0)
	for i := l.find(from); i < len(l.segs); i++ {
		if sg := l.segs[i]; topics[sg.topic] {
			n += sg.base + sg.n - max(from, sg.base)
		}
	}
	return n
}
