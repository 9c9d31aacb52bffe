package kafkabroker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// haste lets the cluster answer fetches as a leader does to whom a message comes between its look at the high watermark and its
// read of the log: it returns the message, and says that the log ends before it. It does so for the fetches at the offsets of
// ends, once each (UnifiedLog.read takes a newer high watermark than Partition.readRecords tells).
type haste struct {
	mu   sync.Mutex
	ends map[int64]int64 // by the offset that is fetched: the end that is told; the message there is in the answer
	told int
}

func (h *haste) control(ts *testSystem, topic string) {
	id := ts.cluster.TopicInfo(topic).TopicID
	ts.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		ts.cluster.KeepControl()
		h.mu.Lock()
		defer h.mu.Unlock()
		r := req.(*kmsg.FetchRequest)
		if len(r.Topics) == 0 || len(r.Topics[0].Partitions) == 0 {
			return nil, nil, false
		}
		from := r.Topics[0].Partitions[0].FetchOffset
		end, ok := h.ends[from]
		if !ok {
			return nil, nil, false
		}
		delete(h.ends, from)
		h.told++
		var raw []byte
		for o := from; o <= end; o++ {
			b := testBatch{base: o, offsets: []int64{o}, value: func(o int64) []byte { return fmt.Appendf(nil, "%s-%d", topic, o) }}
			raw = append(raw, b.bytes()...)
		}
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset, p.RecordBatches = end, end, raw
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID, t.Partitions = topic, id, append(t.Partitions, p)
		res := req.ResponseKind().(*kmsg.FetchResponse)
		res.Topics = append(res.Topics, t)
		return res, nil, true
	})
}

// TestAheadOfTheEnd: what an answer has beyond the end that it tells is no lie where the next answer tells a later one. It comes,
// and nothing is said.
func TestAheadOfTheEnd(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	want := ts.put(t, ts.topics[0], 0, 10)
	h := &haste{ends: map[int64]int64{0: 4, 4: 4}} // a message behind others, which is the first one of the next answer
	h.control(ts, ts.topics[0])
	r := startRunner(t, ts.config(ts.net.link()))
	eventually(t, "all came", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
	if e, ok := r.event(broker.Warning, ""); ok {
		t.Errorf("it warns: %v", e.Err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(r.seen()); n != len(want) || h.told != 2 {
		t.Errorf("%d messages were seen, want %d; %d answers were hasty, want 2", n, len(want), h.told)
	}
}

// TestLogViewAheadOfTheEnd is the same for a view of the log; what came after it had looked for the end is not wanted.
func TestLogViewAheadOfTheEnd(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1)
	want := ts.put(t, ts.topics[0], 0, 10)
	h := &haste{ends: map[int64]int64{0: 10}}
	h.control(ts, ts.topics[0])
	var got []string
	_, err := newLogView(t, ts.brokers).Scan(t.Context(), broker.Scan{Topic: ts.topics[0]}, func(m *broker.Message) error {
		got = append(got, string(m.Value))
		return nil
	})
	if err != nil || !slices.Equal(got, want) || h.told != 1 {
		t.Errorf("%v, got %s after %d hasty answers, want %s", err, strings.Join(got, " "), h.told, strings.Join(want, " "))
	}
}
