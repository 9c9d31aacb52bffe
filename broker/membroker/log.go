package membroker

import (
	"fmt"
	"sort"

	"github.com/longshoremq/longshore/broker"
)

// segmentSize is how many messages a segment takes before the next one begins, unless one call produces more.
const segmentSize = 256

// A segment is a piece of a log: n messages of one topic from offset base on. What was written to ms is never written again; it
// may be appended to, so readers take a span, which has its own slice header. A segment longer than ms repeats it (Fill).
type segment struct {
	base, n int64
	topic   string
	ms      []broker.Message
	// ends[i] is how many bytes ms[:i] has: so that sizes are known without touching the messages.
	ends []int64
}

func (sg *segment) add(ms []broker.Message) {
	if sg.ends == nil {
		sg.ends = append(make([]int64, 0, len(ms)+1), 0)
	}
	bytes := sg.ends[len(sg.ends)-1]
	for i := range ms {
		bytes += sizeOf(&ms[i])
		sg.ends = append(sg.ends, bytes)
	}
	sg.ms = append(sg.ms, ms...)
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
	// removed are offsets that scans leave out (LogView.Remove).
	removed map[int64]bool
}

// origin is the offset of its first message ever.
func (l *commitLog) origin() int64 {
	if l.partition < 0 {
		return 1
	}
	return 0
}

// name is Message.Log, of messages stored in an epoch.
func (l *commitLog) name(epoch int) string {
	return fmt.Sprintf("%s-%d/%d", l.topic, epoch, l.partition)
}

// A span is a run of messages on its way to Receive. attempt and runs hold for each of them.
type span struct {
	ms            []broker.Message // ms[0] is at base
	ends          []int64          // as of the segment
	base          int64
	from, n       int64
	bytes         int64
	attempt, runs int32
}

func (sp *span) at(o int64) *broker.Message { return &sp.ms[o-sp.base] }

func (sp *span) size(o int64) int64 { return sp.ends[o-sp.base+1] - sp.ends[o-sp.base] }

func sizeOf(m *broker.Message) int64 {
	return int64(len(m.Key) + len(m.Value) + len(m.Headers.Raw))
}

// append adds messages of one topic, n in all, which repeat ms.
func (l *commitLog) append(topic string, ms []broker.Message, n int64) {
	repeats := n != int64(len(ms))
	if k := len(l.segs); !repeats && k > 0 {
		last := l.segs[k-1]
		if last.topic == topic && last.n == int64(len(last.ms)) && len(last.ms)+len(ms) <= segmentSize {
			last.add(ms)
			last.n += n
			l.end += n
			return
		}
	}
	sg := &segment{base: l.end, n: n, topic: topic}
	sg.add(ms)
	l.segs = append(l.segs, sg)
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
	sp = span{ms: sg.ms[at:], ends: sg.ends[at:], base: from, from: from, attempt: 1}
	sp.n = min(int64(limit), int64(len(sp.ms)), sg.base+sg.n-from)
	if sp.ends[sp.n]-sp.ends[0] > maxBytes {
		over := sort.Search(int(sp.n), func(i int) bool { return sp.ends[i+1]-sp.ends[0] > maxBytes })
		sp.n = int64(max(1, over))
	}
	sp.bytes = sp.ends[sp.n] - sp.ends[0]
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
