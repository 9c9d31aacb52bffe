package kafkabroker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestLongBatch: a batch is longer than any answer may be, and the broker sends it whole whatever a fetch asks for. It cannot be
// decoded: it is named, and what the policy says is done. The other partitions of the broker go on.
func TestLongBatch(t *testing.T) {
	t.Parallel()
	for _, skip := range []bool{false, true} {
		setup := brokertest.Setup{Topics: 2, Partitions: 1}
		t.Run(fmt.Sprint("fake/", skip), func(t *testing.T) { testLongBatch(t, fakeSystem(t, setup, "sticky"), skip) })
		t.Run(fmt.Sprint("real/", skip), func(t *testing.T) { testLongBatch(t, realSystem(t, setup, "sticky"), skip) })
	}
}

func testLongBatch(t *testing.T, ts *testSystem, skip bool) {
	long := ts.group + "-long"
	createTopic(t, ts.admin, long, 1, "max.message.bytes", "20000000")
	t.Cleanup(func() { deleteTopic(t, ts.admin, long) })
	before := ts.put(t, long, 0, 1)
	value := func(int64) []byte { return make([]byte, 2<<20) }
	produceRaw(t, ts.admin, long, testBatch{offsets: offsets(0, 3), value: value, corrupt: unproduced}.bytes())
	after := ts.put(t, long, 4, 3)
	other := ts.put(t, ts.topics[0], 0, 3)
	cfg := ts.config(ts.net.link())
	cfg.Topics = []string{ts.topics[0], long}
	cfg.FetchBytes, cfg.MaxBatchBytes, cfg.SkipUndecodable = 1<<20, 64<<10, skip
	r := startRunner(t, cfg)
	name := long + "/0: record batch at offset 1: batch of 6"
	eventually(t, "what is before it, and elsewhere, came", func() bool { return r.has(before) && r.has(other) })
	if !skip {
		<-r.end
		if r.err == nil || !strings.Contains(r.err.Error(), name) {
			t.Errorf("Receive returned %v, want the topic, partition, offset and length", r.err)
		}
		return
	}
	eventually(t, "what is behind it came", func() bool { return r.has(after) })
	if e := r.told(t, broker.Gap, name); e.From != 1 || e.N != 3 {
		t.Errorf("the gap is %+v", e)
	}
}
